package digests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"sort"
	"time"

	"docstore/internal/canary"
	"docstore/internal/checksum"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/internal/segment"
	"docstore/queue/shard"
)

// Options configure a Table. Nil and zero values are the defaults.
type Options struct {
	FS     vfs.FS           // of the directory; the default is vfs.OS
	Layout shard.Layout     // of the collection; the default is that which shard.Read returns
	Logger *slog.Logger     // the default discards
	Now    func() time.Time // the default is time.Now
}

// Open returns the table of the collection in dir, as its queues are now. Its errors are those of
// queue.Reader.Scan; a document that cannot be read is no error.
func Open(ctx context.Context, dir string, opts *Options) (*Table, error) {
	t := &Table{dir: dir}
	if opts != nil {
		t.options = *opts
	}
	o := &t.options
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Layout == (shard.Layout{}) {
		var err error
		if o.Layout, err = shard.Read(o.FS, dir); err != nil {
			return nil, err
		}
	}
	if err := t.load(); err != nil {
		return nil, err
	}
	err := t.Update(ctx)
	if isOther(err) {
		o.Logger.Warn("the queue has another history; the digests of its documents are made again", "queue", dir, "error", err)
		t.positions = make([]queue.Position, o.Layout.Shards)
		t.rows = nil
		err = t.Update(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// isOther reports whether an error says that a queue is not the one that was read before, or
// ends before the position.
func isOther(err error) bool {
	for _, other := range []error{queue.ErrForked, queue.ErrDiverged, queue.ErrTruncated, queue.ErrUnavailable} {
		if errors.Is(err, other) {
			return true
		}
	}
	return false
}

// Update reads the entries that were added to the queues, and replaces the file. No other
// function may be running.
func (t *Table) Update(ctx context.Context) (err error) {
	s := sorter{fs: t.options.FS, name: t.name()}
	defer func() { err = errors.Join(err, s.close()) }()
	positions := slices.Clone(t.positions)
	for i := range positions {
		if positions[i], err = t.read(ctx, i, &s); err != nil {
			return err
		}
	}
	if s.empty() && slices.Equal(positions, t.positions) {
		return nil
	}
	if err := t.write(&s, positions); err != nil {
		return err
	}
	if err := t.Close(); err != nil {
		return err
	}
	return t.open()
}

// read adds the entries of a shard behind its position, and returns the position after them.
func (t *Table) read(ctx context.Context, shard int, s *sorter) (queue.Position, error) {
	at := t.positions[shard]
	r, err := t.reader(shard)
	if err != nil {
		return at, err
	}
	defer func() { _ = r.Close() }() // it only reads
	var document []byte
	err = r.Scan(ctx, at, func(e queue.Entry) error {
		at = e.Next
		if canary.Is(e.ID) && !e.Deleted {
			return nil
		}
		entry := row{id: hashOf(e.ID), expiry: segment.ExpirySeconds(e.Expires)}
		if e.Deleted {
			entry.order = 1
			return s.add(entry)
		}
		if document, err = r.Document(document[:0], e.Address); err != nil && !errors.Is(err, queue.ErrUnavailable) {
			return err
		}
		if err == nil {
			entry.value = Of(document, e.Expires).Content
		}
		return s.add(entry)
	})
	return at, err
}

func (t *Table) reader(shard int) (*queue.Reader, error) {
	return queue.OpenReader(t.options.Layout.Dir(t.dir, shard), &queue.ReaderOptions{FS: t.options.FS})
}

// write replaces the file by the rows of the table and those that follow.
func (t *Table) write(s *sorter, positions []queue.Position) error {
	fsys, temporary := t.options.FS, t.name()+vfs.TmpSuffix
	if err := remove(fsys, temporary); err != nil {
		return err
	}
	file, err := fsys.Create(temporary)
	if err != nil {
		return err
	}
	// It is not synced: a file that a loss of power damages is made again.
	if err = errors.Join(t.writeTo(file, s, positions), file.Close()); err == nil {
		err = fsys.Rename(temporary, t.name())
	}
	if err != nil {
		return errors.Join(err, remove(fsys, temporary))
	}
	return nil
}

// writeTo writes the newest row of each id, unless it was deleted or has expired.
func (t *Table) writeTo(file vfs.File, s *sorter, positions []queue.Position) error {
	w := tableWriter{to: bufio.NewWriterSize(file, bufferBytes), now: t.options.Now(), rest: t.rows}
	var newest row
	some := false
	for r, err := range s.sorted() {
		if err != nil {
			return err
		}
		if some && r.id != newest.id {
			if err := w.put(newest); err != nil {
				return err
			}
		}
		newest, some = r, true
	}
	if some {
		if err := w.put(newest); err != nil {
			return err
		}
	}
	if err := w.copy(w.rest); err != nil {
		return err
	}
	end, err := encodeEnd(w.rows, positions, w.crc)
	if err != nil {
		return err
	}
	if _, err := w.to.Write(end); err != nil {
		return err
	}
	return w.to.Flush()
}

// tableWriter writes the rows of a table with changes.
type tableWriter struct {
	to     *bufio.Writer
	now    time.Time
	rest   []byte // rows of the table before, which may be mapped, that were not copied yet
	rows   int64
	crc    uint32
	buffer []byte
}

// put replaces the row of an id, or adds or deletes it. The ids ascend.
func (w *tableWriter) put(r row) error {
	n, found := 0, false
	if err := vfs.Guard(func() { n, found = rowsBefore(w.rest, r.id) }); err != nil {
		return err
	}
	if err := w.copy(w.rest[:n]); err != nil {
		return err
	}
	if w.rest = w.rest[n:]; found {
		w.rest = w.rest[rowBytes:]
	}
	if r.deleted() || r.digest().Expired(w.now) {
		return nil
	}
	r.order = 0
	w.buffer = r.append(w.buffer[:0])
	return w.write()
}

// rowsBefore returns the bytes of the rows before an id, and whether the id has the next row. Rows
// that are near are found soonest.
func rowsBefore(rows []byte, id hash) (n int, found bool) {
	of := func(i int) []byte { return rows[i*rowBytes:][:len(id)] }
	all, low, high := len(rows)/rowBytes, 0, 1
	for high < all && bytes.Compare(of(high), id[:]) < 0 {
		low, high = high, 2*high
	}
	low += sort.Search(min(high, all)-low, func(i int) bool { return bytes.Compare(of(low+i), id[:]) >= 0 })
	return low * rowBytes, low < all && bytes.Equal(of(low), id[:])
}

// copy writes rows, except those that have expired.
func (w *tableWriter) copy(rows []byte) error {
	for len(rows) > 0 {
		part := rows[:min(len(rows), bufferBytes)]
		w.buffer = w.buffer[:0]
		err := vfs.Guard(func() {
			for ; len(part) > 0; part = part[rowBytes:] {
				if !(Digest{Expires: binary.LittleEndian.Uint32(part[24:])}).Expired(w.now) {
					w.buffer = append(w.buffer, part[:rowBytes]...)
				}
			}
		})
		if err == nil {
			err = w.write()
		}
		if err != nil {
			return err
		}
		rows = rows[min(len(rows), bufferBytes):]
	}
	return nil
}

// write writes the rows in the buffer.
func (w *tableWriter) write() error {
	w.rows += int64(len(w.buffer) / rowBytes)
	w.crc = checksum.Update(w.crc, w.buffer)
	_, err := w.to.Write(w.buffer)
	return err
}

// IDs calls fn for the entries in the queues whose ids have a row, several times for an id with
// several entries. The id is valid until fn returns.
func (t *Table) IDs(ctx context.Context, fn func(id []byte, row int64) error) error {
	for i := range t.positions {
		r, err := t.reader(i)
		if err != nil {
			return err
		}
		err = r.Scan(ctx, queue.Position{}, func(e queue.Entry) error {
			row, _, err := t.Find(e.ID)
			if err != nil || row < 0 {
				return err
			}
			return fn(e.ID, row)
		})
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
	}
	return nil
}
