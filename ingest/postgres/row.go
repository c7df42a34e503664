package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"docstore/ingest"
	"docstore/ingest/postgres/pgjson"
	"docstore/queue"
)

// format converts rows to records.
type format struct {
	columns []formatColumn
	keys    []int // columns of the key, in its order
}

type formatColumn struct {
	name   string
	prefix []byte // `{"name":` or `,"name":`
	typ    *pgjson.Type
}

// newFormat returns the format of rows with the given columns. It returns an error if a column
// of the key is missing.
func newFormat(names []string, types []*pgjson.Type, keys []string) (*format, error) {
	f := &format{columns: make([]formatColumn, len(names))}
	for i, n := range names {
		prefix := []byte{','}
		if i == 0 {
			prefix[0] = '{'
		}
		f.columns[i] = formatColumn{name: n, prefix: append(pgjson.AppendString(prefix, []byte(n)), ':'), typ: types[i]}
	}
	for _, key := range keys {
		i := slices.Index(names, key)
		if i < 0 {
			return nil, fmt.Errorf("no column %q among the columns %q", key, names)
		}
		f.keys = append(f.keys, i)
	}
	return f, nil
}

// appendDocument appends a row as a JSON object. A nil value is null. On an error the document
// is complete, but the value is wrong.
func (f *format) appendDocument(dst []byte, values [][]byte) ([]byte, error) {
	var problem error
	for i := range f.columns {
		c := &f.columns[i]
		dst = append(dst, c.prefix...)
		if values[i] == nil {
			dst = append(dst, "null"...)
			continue
		}
		var err error
		if dst, err = c.typ.Append(dst, values[i]); err != nil && problem == nil {
			problem = fmt.Errorf("column %s: %w", c.name, err)
		}
	}
	return append(dst, '}'), problem
}

var errNullKey = errors.New("the key is null")

// appendID appends the id of a row. The values of several key columns are separated by commas;
// a comma or backslash in one is preceded by a backslash.
func (f *format) appendID(dst []byte, values [][]byte) ([]byte, error) {
	for n, i := range f.keys {
		if values[i] == nil {
			return dst, errNullKey
		}
		if n > 0 {
			dst = append(dst, ',')
		}
		start := len(dst)
		var err error
		if dst, err = f.columns[i].typ.AppendPlain(dst, values[i]); err != nil {
			return dst, fmt.Errorf("column %s: %w", f.columns[i].name, err)
		}
		if len(f.keys) > 1 && bytes.ContainsAny(dst[start:], `,\`) {
			dst = appendEscaped(dst[:start], slices.Clone(dst[start:]))
		}
	}
	return dst, nil
}

func appendEscaped(dst, part []byte) []byte {
	for _, c := range part {
		if c == ',' || c == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, c)
	}
	return dst
}

// checkID returns an error if the queue does not take an id.
func checkID(id []byte) error {
	switch {
	case len(id) == 0:
		return errors.New("the key is empty")
	case len(id) > queue.MaxIDBytes:
		return fmt.Errorf("the key has %d bytes, more than the %d of an id", len(id), queue.MaxIDBytes)
	}
	return nil
}

// put returns the document of a row.
func (f *format) put(room *room, values [][]byte) ingest.Record {
	var r ingest.Record
	dst := room.begin()
	dst, documentProblem := f.appendDocument(dst, values)
	end := len(dst)
	dst, problem := f.appendID(dst, values)
	r.Document, r.ID = room.end(dst, end)
	if problem == nil {
		problem = checkID(r.ID)
	}
	if problem == nil {
		problem = documentProblem
	}
	if problem == nil && len(r.Document) > queue.MaxDocumentBytes {
		problem = fmt.Errorf("the row has %d bytes as JSON, more than the %d of a document", len(r.Document), queue.MaxDocumentBytes)
	}
	r.Problem = problem
	return r
}

// remove returns the delete of a row whose key is known.
func (f *format) remove(room *room, values [][]byte) ingest.Record {
	dst, problem := f.appendID(room.begin(), values)
	_, id := room.end(dst, 0)
	if problem == nil {
		problem = checkID(id)
	}
	return ingest.Record{ID: id, Delete: true, Problem: problem}
}

// key returns the encoded key of a row for a cursor, nil if it is too long.
func (f *format) key(room *room, values [][]byte) []byte {
	parts := make([][]byte, 0, 4)
	bytes := 0
	for _, i := range f.keys {
		parts = append(parts, values[i])
		bytes += len(values[i]) + 2
	}
	if bytes > maxKeyBytes {
		return nil
	}
	_, key := room.end(appendKey(room.begin(), parts), 0)
	return key
}

// roomBytes is the size of the pieces in which memory for records is allocated.
const roomBytes = 64 << 10

// room allocates the memory of records.
type room struct{ free []byte }

// begin returns a slice to append to, before end.
func (r *room) begin() []byte {
	if cap(r.free) < roomBytes/16 {
		r.free = make([]byte, 0, roomBytes)
	}
	return r.free[:0]
}

// end returns the parts of the appended bytes before and behind middle.
func (r *room) end(used []byte, middle int) (front, back []byte) {
	if cap(used) == cap(r.free) {
		r.free = r.free[:cap(r.free)][len(used):][:0]
	}
	return used[:middle:middle], used[middle:len(used):len(used)]
}
