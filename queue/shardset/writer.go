package shardset

import (
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"docstore/queue"
	"docstore/queue/shard"
)

// Writer appends to the shards of a collection. It is safe for concurrent use, with the exception
// of Put: one goroutine at a time calls it. A directory has one Writer at a time.
//
// Entries are in memory when Put returns, and durable and visible to readers after Flush. The
// first write error is final: flushed entries are safe, and every later call, including Close,
// returns it. To continue, close the Writer and open another.
type Writer struct {
	dir     string
	options Options
	layout  shard.Layout
	lock    io.Closer          // nil: the queue of the only shard has locked the directory
	group   *queue.WriterGroup // nil: there is one shard
	shards  []*queue.Writer

	closing  sync.Once
	closeErr error

	mu struct {
		sync.Mutex // also held during a checkpoint, so that no Put changes an end
		closed     bool
		err        error     // final
		open       []bool    // shards with entries since the last Seal; nil: the only one
		begin      []bool    // shards whose next entry begins a transaction; nil: none
		begun      bool      // the cursors of this input replace those of an earlier one
		behind     bool      // shards may have records after the cursor
		cursor     []byte    // of the last record
		news       bool      // the cursor has changed since the last checkpoint
		checked    time.Time // time of the last checkpoint
		safe       []byte    // its cursor; not changed
	}
}

// Layout returns the layout of the collection.
func (w *Writer) Layout() shard.Layout { return w.layout }

// Dir returns the directory of a shard's queue.
func (w *Writer) Dir(shard int) string { return w.layout.Dir(w.dir, shard) }

// Ends returns the address after the last entry of each shard; zero: there is none.
func (w *Writer) Ends() []queue.Address {
	ends := make([]queue.Address, len(w.shards))
	for i, s := range w.shards {
		ends[i] = s.End()
	}
	return ends
}

// Put adds an entry to the shard of its id. The slices may be reused after it returns. With a
// cursor the record is one of an input, whose records are put in their order. The first record
// with a cursor begins another input than that of an earlier Writer, unless Resume was called.
func (w *Writer) Put(r queue.Record) error {
	if len(w.shards) == 1 {
		// The block has the cursor: no checkpoint is needed.
		_, err := w.shards[0].Put(r)
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil {
		return err
	}
	if r.Cursor != nil && !w.mu.begun {
		if err := w.checkpoint(nil); err != nil {
			return w.fail(err)
		}
		w.mu.begun = true
	}
	i := w.layout.Shard(r.ID)
	if w.mu.begin != nil && w.mu.begin[i] {
		if err := w.shards[i].Begin(); err != nil {
			return w.fail(err)
		}
		w.mu.begin[i] = false
	}
	if _, err := w.shards[i].Put(r); err != nil {
		if !ofRecord(err) {
			err = w.fail(err)
		}
		return err
	}
	w.mu.open[i] = true
	if r.Cursor != nil {
		w.mu.cursor, w.mu.news = append(w.mu.cursor[:0], r.Cursor...), true
	}
	return nil
}

// ofRecord reports whether an error of Put says that the record is invalid.
func ofRecord(err error) bool {
	for _, invalid := range []error{queue.ErrIDEmpty, queue.ErrIDTooLong, queue.ErrDocumentTooLarge, queue.ErrCursorTooLong, queue.ErrDeleteWithDocument} {
		if errors.Is(err, invalid) {
			return true
		}
	}
	return false
}

// Cursors returns the position in the input of each shard: the shard has all of its records
// that are before. Empty: the start of the input.
func (w *Writer) Cursors() [][]byte {
	cursors := make([][]byte, len(w.shards))
	for i, s := range w.shards {
		cursors[i] = s.Cursor()
	}
	return cursors
}

// Resumable returns the cursor before which no later Writer needs records, given that all up to
// the cursor durable are durable: with several shards that of the last checkpoint of this
// Writer, empty before the first.
func (w *Writer) Resumable(durable []byte) []byte {
	if len(w.shards) == 1 {
		return durable
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.safe
}

// Resume says that the records which follow continue the input of the last Writer. With
// behind the shards have different cursors, so that some may have records that are read again:
// no checkpoint is made before CaughtUp or Checkpoint. Call it before the first Put.
func (w *Writer) Resume(behind bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.begun, w.mu.behind = true, behind
}

// CaughtUp says that no shard has a record after the cursor of the next Put.
func (w *Writer) CaughtUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.behind, w.mu.news = false, false
}

// Checkpoint makes a checkpoint: all shards together have the records up to a cursor, empty: the
// start of the input, and no others.
func (w *Writer) Checkpoint(cursor []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil {
		return err
	}
	if err := w.checkpoint(cursor); err != nil {
		return w.fail(err)
	}
	return nil
}

// Begin begins a transaction of each shard, which the next Flush commits: see queue.Writer.Begin.
// A crash during Flush can leave the entries of some shards committed.
func (w *Writer) Begin() error {
	if len(w.shards) == 1 {
		return w.shards[0].Begin()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.begin = make([]bool, len(w.shards))
	for i := range w.mu.begin {
		w.mu.begin[i] = true
	}
	return w.usable()
}

// Flush makes all previous entries durable and visible to readers. Puts may continue
// concurrently.
func (w *Writer) Flush() error {
	w.mu.Lock()
	if err := w.usable(); err != nil {
		w.mu.Unlock()
		return err
	}
	open := slices.Clone(w.mu.open)
	w.mu.begin = nil
	w.mu.Unlock()
	err := w.flushShards(open)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		return w.fail(err)
	}
	if w.usable() == nil && w.options.Now().Sub(w.mu.checked) >= checkpointInterval {
		return w.check()
	}
	return nil
}

// flushShards flushes the open shards. One without new entries only waits for a flush of
// another goroutine.
func (w *Writer) flushShards(open []bool) error {
	return w.each(open, func(i int) error { return w.shards[i].Flush() })
}

// Seal makes all previous entries durable and closes the open segments.
func (w *Writer) Seal() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil {
		return err
	}
	if err := w.each(w.mu.open, func(i int) error { return w.shards[i].Seal() }); err != nil {
		return w.fail(err)
	}
	clear(w.mu.open)
	return w.check()
}

// Close seals the segments and unlocks the directory. It returns the error of an earlier
// failure if there was one. It is idempotent.
func (w *Writer) Close() error {
	w.closing.Do(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		err := w.usable()
		if err == nil {
			err = w.check()
		}
		w.mu.closed = true
		if closing := w.release(); err == nil {
			err = closing
		}
		w.closeErr = err
	})
	return w.closeErr
}

// check makes a checkpoint if there is something to state, which one shard never has. The mutex must be held.
func (w *Writer) check() error {
	if !w.mu.news || w.mu.behind {
		return nil
	}
	if err := w.checkpoint(w.mu.cursor); err != nil {
		return w.fail(err)
	}
	return nil
}

// checkpoint makes all entries durable and states that they are those up to the cursor, and
// that no others are. The mutex must be held.
func (w *Writer) checkpoint(cursor []byte) error {
	if err := w.flushShards(w.mu.open); err != nil {
		return err
	}
	c := checkpoint{Cursor: cursor, Ends: make([]end, len(w.shards))}
	for i, s := range w.shards {
		s.SetCursor(cursor)
		c.Ends[i] = endOf(s.End())
	}
	if err := writeCheckpoint(w.options.FS, w.dir, c); err != nil {
		return err
	}
	w.mu.behind, w.mu.news = false, false
	w.mu.checked, w.mu.safe = w.options.Now(), slices.Clone(cursor)
	return nil
}

// usable returns the error that prevents writes. The mutex must be held.
func (w *Writer) usable() error {
	if w.mu.closed {
		return queue.ErrClosed
	}
	return w.mu.err
}

// fail makes err the final error unless there is one, and returns the final error. The mutex
// must be held.
func (w *Writer) fail(err error) error {
	if w.mu.err == nil {
		w.mu.err = err
	}
	return w.mu.err
}
