package collection

import (
	"context"
	"fmt"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/docservice"
	"docstore/docservice/internal/wire"
	"docstore/internal/canary"
	"docstore/internal/ctxtime"
	"docstore/internal/rare"
	"docstore/lsm"
	"docstore/queue"
)

// A batch of entries is applied to the index when no entry is waiting in the queue, or when
// it has this size: large enough to amortize the cost of applying it, and small enough not
// to use much memory.
const (
	maxTailBatchEntries = 4096
	maxTailBatchBytes   = 1 << 20
)

// tailState is the progress of the tail.
type tailState struct {
	position queue.Position // included in the index
	// current: no entry was waiting in the queue at the last poll.
	current bool
	// idle: no entry was applied for a while, for example because a file is missing.
	idle     bool
	applied  uint64    // entries applied since the collection was opened
	appended time.Time // when the newest applied entry was appended
	// unread is when the first entry that could not be written to the index was appended; zero:
	// there is none.
	unread time.Time
	// reachedEnd: the tail has reached the end of the queue once. Entries before that are
	// as old as the queue and say nothing about the delay until documents are visible.
	reachedEnd bool
	// visibleAfter is the delay from append to index of the newest entry after that; 0
	// before.
	visibleAfter time.Duration
	freshness    Freshness // of the entries after that
	canaries     Freshness // of the canaries after that
	canarySent   time.Time // when the newest canary in the index was sent; zero: it has none
}

// follower applies the entries of the queue to the index, and determines when the index is
// complete.
type follower struct {
	*shared
	reader  *reader
	settler *settler
}

// runTail follows the queue until the collection is closed. An error is recorded as a
// fault, and reading is retried from the committed position: a sound copy of a damaged
// segment, or free disk space, may arrive at any time.
func (f *follower) runTail(ctx context.Context) {
	f.findCanary()
	for {
		err := f.tail(ctx)
		if ctx.Err() != nil {
			return
		}
		f.tailStopped(err)
		if !ctxtime.Sleep(ctx, f.options.RetryInterval) {
			return
		}
	}
}

// tail follows the queue from the committed position until an error.
func (f *follower) tail(ctx context.Context) error {
	from := f.health.tailState().position
	pending := tailBatch{follower: f}
	err := f.queue.Tail(ctx, from, pending.add)
	if pending.refused {
		return err
	}
	// The entries before the fault are valid.
	if commitErr := pending.commit(); commitErr != nil {
		return commitErr
	}
	return err
}

// tailBatch collects entries of the queue for the index.
type tailBatch struct {
	follower *follower
	batch    lsm.Batch
	bytes    int            // of ids and values in batch
	next     queue.Position // after the last entry in batch
	oldest   time.Time      // when the first entry in batch was appended
	appended time.Time      // of the last entry in batch
	soonest  expiries       // of the entries in batch
	refused  bool           // writing a batch failed: no later batch may be written
	loads    []cacheLoad    // for the cache, of the entries in batch
	canary   []byte         // the id of the last canary of append in batch; empty: it has none
	canaryAt queue.Address
	buffer   []byte
}

// add adds an entry, and commits if no entry is waiting.
func (b *tailBatch) add(e queue.Entry) error {
	if !wire.ValidIDBytes(len(e.ID)) {
		return errors.Wrapf(docservice.ErrBadID, "queue entry at %v: id of %d bytes", e.Address, len(e.ID))
	}
	entry := entryOf(&e)
	var err error
	if e.Deleted {
		err = b.batch.Delete(e.ID)
	} else {
		b.soonest.add(entry.expiry)
		b.buffer = entry.append(b.buffer[:0])
		err = b.batch.Set(e.ID, b.buffer)
	}
	if err != nil {
		return err
	}
	if b.follower.options.Cache != nil {
		b.noteLoads(e, entry)
	}
	if canary.IsOfAppend(e.ID) && !e.Deleted {
		b.canary, b.canaryAt = append(b.canary[:0], e.ID...), e.Address
	}
	if b.bytes == 0 {
		b.oldest = e.Appended
	}
	b.bytes += len(e.ID) + indexEntryBytes
	b.next, b.appended = e.Next, e.Appended
	if e.More && b.batch.Len() < maxTailBatchEntries && b.bytes < rare.Limit("tail batch", maxTailBatchBytes, 200) {
		return nil
	}
	return b.commit()
}

// noteLoads records the cache operations for an entry: delete the previous version, store
// the new one.
func (b *tailBatch) noteLoads(e queue.Entry, entry indexEntry) {
	if before, ok := b.follower.reader.cachedBefore(e.ID); ok && before.address != e.Address {
		b.loads = append(b.loads, cacheLoad{reader: b.follower.reader, entry: before, remove: true})
	}
	if !e.Deleted {
		b.loads = append(b.loads, cacheLoad{reader: b.follower.reader, id: string(e.ID), entry: entry})
	}
}

// errIndexWrite is matched by every error of writing entries to the index.
var errIndexWrite = errors.New("write to the index")

// commit applies the collected entries and the position after them atomically.
func (b *tailBatch) commit() error {
	entries := b.batch.Len()
	if entries == 0 {
		return nil
	}
	if err := b.follower.apply(&b.batch, b.next, b.soonest); err != nil {
		b.refused = true
		b.follower.health.unread(b.oldest)
		return fmt.Errorf("%w: %w", errIndexWrite, err)
	}
	b.follower.committed(b.next, entries, b.oldest, b.appended)
	if len(b.canary) > 0 {
		b.follower.servesCanary(b.canary, b.canaryAt)
		b.canary = b.canary[:0]
	}
	for _, load := range b.loads {
		b.follower.options.Cache.enqueue(load)
	}
	b.loads = b.loads[:0]
	b.batch.Reset()
	b.bytes, b.soonest = 0, 0
	return nil
}

// apply writes a batch of the entries before next to the index; soonest is their earliest
// expiry.
func (f *follower) apply(batch *lsm.Batch, next queue.Position, soonest expiries) error {
	f.indexing.Lock()
	defer f.indexing.Unlock()
	f.indexing.soonest.add(uint32(soonest))
	state := indexState{next, f.indexing.state.unsettled}
	err := state.putIn(batch)
	if err == nil {
		err = f.index.Apply(batch)
	}
	if err == nil {
		f.indexing.state = state
	}
	return err
}

// committed records that the index has followed the queue up to next.
func (f *follower) committed(next queue.Position, entries int, oldest, appended time.Time) {
	f.setQueueID(next)
	if f.health.committed(next, entries, oldest, appended) {
		f.logger.Info("reading the queue again", "position", next.Next.String())
	}
}

// caughtUp is called by the queue, in the goroutine of the tail, when no entry is waiting.
// Every entry has then been committed, because the last one had More == false.
func (f *follower) caughtUp(at queue.Position) {
	reached, ends := f.health.reached()
	reached = reached || f.atEnd(at)
	resumed := f.health.caughtUp(at)
	f.settler.caughtUp()
	if ready := f.reachedEnd(at, reached, ends); resumed && !ready {
		f.logger.Info("reading the queue again", "position", at.Next.String())
	}
}

// reachedEnd reports to health that the tail stands at a position, and whether this made
// the collection ready. ends was read before atEnd was determined.
func (f *follower) reachedEnd(at queue.Position, atEnd bool, ends uint64) bool {
	ready, valid := f.health.reachedEnd(at, atEnd, ends)
	for !valid {
		_, ends = f.health.reached()
		ready, valid = f.health.reachedEnd(at, f.atEnd(at), ends)
	}
	if ready {
		f.logger.Info("the queue has been read to its end", "position", at.Next.String())
	}
	return ready
}

// endUnknown is health.endUnknown; the tail may stand at the end already.
func (f *follower) endUnknown() {
	f.health.endUnknown()
	f.checkEnd()
}

// checkEnd determines whether the tail stands at the end.
func (f *follower) checkEnd() {
	_, ends := f.health.reached()
	at := f.health.tailState().position
	f.reachedEnd(at, f.atEnd(at), ends)
}

// atEnd reports whether a position is after all entries here. If there is no entry, since no segment
// has arrived or one is missing before others, the end is reached only if the head file says that the
// queue is empty. It may still say so when increments have been added to an empty queue.
func (f *follower) atEnd(at queue.Position) bool {
	end := f.queue.End()
	if !f.health.knowsHead() {
		f.readHead() // after listing the segments: the head file is copied before them
	}
	if end.IsZero() {
		return at.Next.IsZero() && f.health.queueIsEmpty()
	}
	return at.Next.Compare(end.Next) >= 0
}

// tailStopped records why reading the queue failed.
func (f *follower) tailStopped(err error) {
	at := queue.Address{} // the error has the address
	if errors.Is(err, queue.ErrDiverged) {
		at = f.health.tailState().position.Next
	}
	fault := f.faultOf(err, at)
	if f.health.tailStopped(err, fault) {
		failed := "reading the queue failed"
		if fault.IndexUnwritten {
			failed = "the index cannot be written"
		}
		f.logger.Error(failed+"; serving the entries read so far and retrying",
			"segment", fault.Segment, "offset", fault.Offset, "path", fault.Path, "reason", fault.Reason)
	}
}
