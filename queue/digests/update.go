package digests

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

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
	w, rows, crc, now := bufio.NewWriterSize(file, bufferBytes), int64(0), uint32(0), t.options.Now()
	put := func(r row) error {
		if r.deleted() || r.digest().Expired(now) {
			return nil
		}
		r.order = 0
		b := r.append(w.AvailableBuffer())
		rows, crc = rows+1, checksum.Update(crc, b)
		_, err := w.Write(b)
		return err
	}
	newest := row{order: 1} // nothing yet
	for r, err := range s.sorted(t.all()) {
		if err != nil {
			return err
		}
		if r.id != newest.id {
			if err := put(newest); err != nil {
				return err
			}
		}
		newest = r
	}
	if err := put(newest); err != nil {
		return err
	}
	end, err := encodeEnd(rows, positions, crc)
	if err != nil {
		return err
	}
	if _, err := w.Write(end); err != nil {
		return err
	}
	return w.Flush()
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
