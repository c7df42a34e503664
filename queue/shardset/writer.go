package shardset

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"docstore/ingest"
	"docstore/queue"
	"docstore/queue/shard"
)

// Writer appends to a divided queue. It is safe for concurrent use, with the exception of
// Resume, Has and Put: one goroutine at a time calls them. A directory has one Writer at a
// time.
//
// Entries are in memory when Put returns, and durable and visible to readers after Flush. The
// first write error is final: flushed entries are safe, and every later call, including Close,
// returns it. To continue, close the Writer and open another.
type Writer struct {
	dir     string
	options Options
	layout  shard.Layout
	lock    io.Closer
	group   *queue.WriterGroup
	shards  []*queue.Writer
	behind  catchUp

	closing  sync.Once
	closeErr error

	mu struct {
		sync.Mutex // also held during a checkpoint, so that no Put changes an end
		closed     bool
		err        error     // final
		open       []bool    // shards with entries since the last Seal
		begun      bool      // the cursors of this input replace those of an earlier one
		cursor     []byte    // of the last record
		news       bool      // the cursor has changed since the last checkpoint
		checked    time.Time // time of the last checkpoint
		safe       []byte    // its cursor; not changed
	}
}

// Layout returns the layout of the queue.
func (w *Writer) Layout() shard.Layout { return w.layout }

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
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil {
		return err
	}
	if r.Cursor != nil && !w.mu.begun {
		if err := w.beginInput(); err != nil {
			return w.fail(err)
		}
	}
	i, cursor := w.layout.Shard(r.ID), r.Cursor
	if w.behind.left > 0 && cursor != nil {
		var err error
		if r.Cursor, err = w.behind.cursorFor(i, cursor); err != nil {
			return w.fail(err)
		}
	}
	if _, err := w.shards[i].Put(r); err != nil {
		if !ofRecord(err) {
			err = w.fail(err)
		}
		return err
	}
	w.mu.open[i] = true
	if cursor != nil {
		w.mu.cursor, w.mu.news = append(w.mu.cursor[:0], cursor...), true
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

// beginInput makes the start of the input the cursor of all shards.
func (w *Writer) beginInput() error {
	if err := w.checkpoint(nil); err != nil {
		return err
	}
	w.mu.begun = true
	return nil
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

// Checkpoint returns the cursor of the last checkpoint of this Writer, empty before the first:
// a later Resume reads nothing that is before it.
func (w *Writer) Checkpoint() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.safe
}

// Resume continues with the input of the last Writer, and returns the cursor behind which it
// is read. Call it before the first Put.
func (w *Writer) Resume(opener ingest.Opener) (from []byte, err error) {
	cursors := w.Cursors()
	if from, err = opener.Earliest(cursors); err != nil {
		return nil, err
	}
	c := catchUp{from: from, positions: make([]ingest.Position, len(cursors)), cursors: cursors}
	c.interleaved, _ = opener.(ingest.Interleaved)
	for i, cursor := range cursors {
		if bytes.Equal(cursor, from) {
			continue
		}
		c.differ = true
		if len(cursor) == 0 {
			continue
		}
		if c.positions[i], err = opener.Position(cursor); err != nil {
			return nil, fmt.Errorf("shardset: the cursor of %s: %w", w.layout.Dir(w.dir, i), err)
		}
		c.left++
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.begun, w.behind = true, c
	return from, nil
}

// Has reports whether Records[i] of the batch, which has this id, is in the queue already. It
// is called for each record in order before it is put, after Resume.
func (w *Writer) Has(b *ingest.Batch, i int, id []byte) bool {
	if !w.behind.differ { // the usual case
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	first := w.behind.batch == nil && w.behind.interleaved == nil
	has, err := w.behind.has(w.layout.Shard(id), b, i)
	if err != nil {
		_ = w.fail(err) // Put returns it
		return false
	}
	if w.behind.left > 0 {
		return has
	}
	w.behind.differ = false
	// The next Put has the first cursor that states the content of the queue.
	w.mu.news = false
	if first && w.usable() == nil {
		// No shard has more than the records up to from. Some have a cursor of an earlier
		// input, which must not be compared with those of this one.
		if err := w.checkpoint(w.behind.from); err != nil {
			_ = w.fail(err) // Put returns it
		}
	}
	return has
}

// InputEnded reports that no record follows the last argument of Has.
func (w *Writer) InputEnded() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.behind.left > 0 && w.behind.batch != nil {
		w.mu.cursor, w.mu.news = append(w.mu.cursor[:0], w.behind.cursor...), true
		w.behind = catchUp{}
	}
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
		if unlocking := w.lock.Close(); err == nil {
			err = unlocking
		}
		w.closeErr = err
	})
	return w.closeErr
}

// check makes a checkpoint if there is something to state. The mutex must be held.
func (w *Writer) check() error {
	if !w.mu.news || w.behind.left > 0 {
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
	w.mu.news, w.mu.checked, w.mu.safe = false, w.options.Now(), slices.Clone(cursor)
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

// catchUp is the state of a resumed input while records are read that shards may have.
type catchUp struct {
	from      []byte            // reading began behind it
	differ    bool              // the cursor of a shard is another one
	positions []ingest.Position // of the shards; nil: it has no record of the rest
	left      int               // positions that are not nil
	cursors   [][]byte          // of the shards
	// interleaved is the opener if cursors are not in one order; nil: they are.
	interleaved ingest.Interleaved
	next        int // the position to compare next
	// The last record that was asked for.
	batch  *ingest.Batch
	index  int
	cursor []byte
}

func (c *catchUp) has(shard int, b *ingest.Batch, i int) (bool, error) {
	if c.interleaved != nil {
		return c.hasInterleaved(shard, b, i)
	}
	another := b != c.batch || i <= c.index // batches are reused
	c.batch, c.index, c.cursor = b, i, b.AppendCursor(c.cursor[:0], i)
	if another {
		for s, p := range c.positions { // also of shards without records
			if p != nil && !b.Included(p, i) {
				c.drop(s)
			}
		}
	}
	p := c.positions[shard]
	if p == nil {
		return false, nil
	}
	if b.Included(p, i) {
		return true, nil
	}
	c.drop(shard)
	return false, nil
}

// hasInterleaved is has for a source whose records may arrive in another order than before. A
// record that a shard lacks says nothing about later ones: the position of a shard is dropped
// when the cursor that was reached includes it. One shard is compared for each record.
func (c *catchUp) hasInterleaved(shard int, b *ingest.Batch, i int) (bool, error) {
	c.batch, c.index, c.cursor = b, i, b.AppendCursor(c.cursor[:0], i)
	p := c.positions[shard]
	has := p != nil && b.Included(p, i)
	for range c.positions {
		s := c.next
		c.next = (c.next + 1) % len(c.positions)
		if c.positions[s] == nil {
			continue
		}
		_, within, err := c.interleaved.Combine(c.cursor, c.cursors[s])
		if err != nil {
			return false, fmt.Errorf("shardset: the cursor of a shard: %w", err)
		}
		if within {
			c.drop(s)
		}
		break
	}
	return has, nil
}

// cursorFor returns the cursor of a record that is put into a shard: it also includes the
// records that the shard has and that were not reached yet.
func (c *catchUp) cursorFor(shard int, cursor []byte) ([]byte, error) {
	if c.interleaved == nil || c.positions[shard] == nil {
		return cursor, nil
	}
	combined, _, err := c.interleaved.Combine(cursor, c.cursors[shard])
	return combined, err
}

func (c *catchUp) drop(shard int) {
	c.positions[shard] = nil
	c.left--
}
