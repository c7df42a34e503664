package records

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"docstore/internal/eof"
)

// table reads the rows of a table as records. The first row has the names of the columns, unless
// the options do;
// cells are quoted as in RFC 4180. A row ends with "\n" or "\r\n", or with "\r" if the first one
// does. A line break "\r\n" within a cell becomes "\n".
type table struct {
	in      *bufio.Reader // read by rows, which uses it directly because its buffer is large enough
	ahead   *limiter
	rows    *csv.Reader
	limit   int
	options Options
	columns []column

	text    bytes.Buffer
	encoder *json.Encoder // into text
}

// column is a column of the table.
type column struct {
	name    string
	key     string // the field name in the record, with its colon
	control bool
	typed   bool // see Options.TypedCells
}

func newTable(in *bufio.Reader, format Format, limit int, options *Options) *table {
	t := &table{limit: limit, options: options.withDefaults()}
	comma := ','
	switch {
	case format == FormatTSV:
		comma = '\t'
	case t.options.Delimiter != 0:
		comma = t.options.Delimiter
	}
	t.ahead = &limiter{in: &lineEnds{in: in, comma: string(comma)}, limit: limit}
	t.in = bufio.NewReaderSize(t.ahead, readBufferBytes)
	t.rows = csv.NewReader(t.in)
	t.rows.Comma, t.rows.ReuseRecord = comma, true
	t.encoder = json.NewEncoder(&t.text)
	t.encoder.SetEscapeHTML(false)
	return t
}

func (t *table) Next() (Record, error) {
	if t.columns == nil {
		if err := t.readNames(); err != nil {
			return Record{}, err
		}
	}
	cells, err := t.rows.Read()
	record := Record{End: t.rows.InputOffset(), Newline: true}
	t.ahead.taken = record.End
	var problem *csv.ParseError
	switch {
	case errors.As(err, &problem) && endless(problem):
		return Record{}, &LineError{int64(problem.StartLine), fmt.Errorf("a cell that begins in this row does not end: %w", problem.Err)}
	case errors.As(err, &problem):
		record.Number = int64(problem.StartLine)
		record.Problem = t.explain(problem, cells)
		return record, nil
	case err != nil:
		return Record{}, err
	}
	line, _ := t.rows.FieldPos(0)
	record.Number = int64(line)
	record.Text, record.Problem = t.object(cells)
	return record, nil
}

// endless reports whether a missing quote may have merged several rows into one cell.
func endless(problem *csv.ParseError) bool {
	return errors.Is(problem, csv.ErrQuote) && problem.Line > problem.StartLine
}

func (t *table) explain(problem *csv.ParseError, cells []string) error {
	if errors.Is(problem, csv.ErrFieldCount) {
		return fmt.Errorf("the row has %d cells, and there are %d columns", len(cells), len(t.columns))
	}
	return fmt.Errorf("line %d, column %d: %w", problem.Line, problem.Column, problem.Err)
}

// readNames reads the first row, unless the options name the columns and there is none.
func (t *table) readNames() error {
	names := t.options.Columns
	if t.options.NoHeader {
		t.rows.FieldsPerRecord = len(names)
		return t.setColumns(names)
	}
	first, err := t.rows.Read()
	var problem *csv.ParseError
	switch {
	case errors.As(err, &problem):
		return &LineError{int64(problem.Line), fmt.Errorf("column %d: %w", problem.Column, problem.Err)}
	case err != nil:
		return err
	case names == nil:
		names = first
	case len(names) != len(first):
		err = fmt.Errorf("the first row has %d cells, and the option columns names %d", len(first), len(names))
	}
	if err == nil {
		err = t.setColumns(names)
	}
	if err != nil {
		line, _ := t.rows.FieldPos(0)
		return &LineError{int64(line), err}
	}
	return nil
}

// setColumns sets the columns of the table.
func (t *table) setColumns(names []string) error {
	if err := CheckColumns(names); err != nil {
		return fmt.Errorf("%w: give the names with the option columns", err)
	}
	columns := make([]column, len(names))
	for i, name := range names {
		t.text.Reset()
		if err := t.encode(name); err != nil {
			return fmt.Errorf("the name of column %d: %w", i+1, err)
		}
		columns[i] = column{name: strings.Clone(name), key: t.text.String() + ":", control: !t.options.PlainFields && isControl(name)}
		columns[i].typed = t.options.TypedCells && !columns[i].control && name != t.options.IDField
	}
	if t.options.Template == nil && !slices.Contains(names, t.options.IDField) && !slices.Contains(names, id64Field) {
		return fmt.Errorf("no id: there is no column %q among %q%s", t.options.IDField, names, delimiterHint(names))
	}
	t.columns = columns
	return nil
}

// CheckColumns returns an error if names are empty or equal.
func CheckColumns(names []string) error {
	var problems []string
	for i, name := range names {
		if first := slices.Index(names, name); name == "" {
			problems = append(problems, fmt.Sprintf("column %d has no name", i+1))
		} else if first < i {
			problems = append(problems, fmt.Sprintf("columns %d and %d are both named %q", first+1, i+1, name))
		}
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, ", "))
	}
	return nil
}

// delimiterHint returns advice if the first row is one cell with the delimiter of another table.
func delimiterHint(names []string) string {
	if len(names) == 1 {
		if i := strings.IndexAny(names[0], ";\t|,"); i >= 0 {
			return fmt.Sprintf("; the cells seem to be separated by %q: set the delimiter to it", names[0][i:i+1])
		}
	}
	return ""
}

// object encodes a row as JSON.
func (t *table) object(cells []string) ([]byte, error) {
	t.text.Reset()
	t.text.WriteByte('{')
	for i, cell := range cells {
		c := &t.columns[i]
		if c.control && cell == "" {
			continue
		}
		if t.text.Len() > 1 {
			t.text.WriteByte(',')
		}
		t.text.WriteString(c.key)
		switch {
		case c.control && (cell == "true" || cell == "false"), c.typed && isTyped(cell):
			t.text.WriteString(cell)
			continue
		case c.typed && cell == "":
			t.text.WriteString("null")
			continue
		}
		if err := t.encode(cell); err != nil {
			return nil, fmt.Errorf("the cell in %q: %w", c.name, err)
		}
	}
	t.text.WriteByte('}')
	if t.text.Len() > t.limit {
		return nil, tooLong(t.limit)
	}
	return t.text.Bytes(), nil
}

// isTyped reports whether a cell is a JSON number or literal.
func isTyped(cell string) bool {
	switch cell {
	case "true", "false", "null":
		return true
	case "":
		return false
	}
	if c := cell[0]; c != '-' && (c < '0' || c > '9') {
		return false
	}
	s := scanner{data: []byte(cell)}
	return s.number() == nil && s.at == len(cell)
}

var errNotUTF8 = errors.New("not UTF-8; if the text is in another encoding, give it with the option encoding")

// encode appends a JSON string to the text.
func (t *table) encode(s string) error {
	if !utf8.ValidString(s) {
		return errNotUTF8
	}
	err := t.encoder.Encode(s)
	t.text.Truncate(t.text.Len() - 1) // the encoder's newline
	return err
}

func (t *table) Waiting() bool {
	buffered, _ := t.in.Peek(t.in.Buffered()) // within the buffer: no error
	return bytes.IndexByte(buffered, '\n') >= 0
}

func (t *table) AtEnd() bool {
	_, err := t.in.Peek(1)
	return eof.Is(err)
}

// limiter reads a stream until it is too far ahead of the records returned: package csv would
// otherwise buffer a record of any size, and an unterminated one never ends.
type limiter struct {
	in     io.Reader
	limit  int
	passed int64
	taken  int64 // offset after the last record
}

func (l *limiter) Read(p []byte) (int, error) {
	if l.passed-l.taken > maxAhead(l.limit) {
		return 0, errEndless
	}
	n, err := l.in.Read(p)
	l.passed += int64(n)
	return n, err
}
