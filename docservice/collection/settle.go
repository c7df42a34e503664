package collection

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/docservice"
	"docstore/internal/ctxtime"
	"docstore/internal/rare"
	"docstore/lsm"
	"docstore/queue"
)

// Compaction drops a deleted document, and the delete once no file has the document. An
// index that was away meanwhile (the server was down, or the index is a restored checkpoint)
// never reads the delete, and its entry of the document stays:
//
//	queue, when the index left     A  B | (end)
//	queue, when it returns           B | C        A and its delete are dropped
//	index                          A  B   C
//
// So while the tail reads a rewrite, earlier entries of the index may be stale if a rewrite
// of their segments was written later than the tail's place (its Settled is after it). These
// segments become unsettled: an entry there counts only if the segments have the document.
// The mark is written with the next entries. When the tail has caught up, the settler removes
// the stale entries of the unsettled segments, and then the mark.
//
// The tail does not distrust the segments that it has read from the present rewrite itself,
// which is the case for an index that is built from the start of a compacted queue.

// maxGoneEntries is the maximum number of stale entries found by fetches that wait for
// removal. Further ones are removed after the next fetch.
const maxGoneEntries = 1024

// settleRest is the pause after an attempt that failed, in multiples of the time that it took.
const settleRest = 10

// longSweepPause is the pause of a sweep in simulations of a large index: see package rare.
const longSweepPause = time.Second

// settler finds and removes entries of documents that compaction has dropped.
type settler struct {
	*shared
	reader *reader
	wake   chan struct{}   // capacity 1: the tail has caught up
	gone   chan staleEntry // found by fetches
	// whole are the rewrites that the tail has read from their first entry on. Only the
	// goroutine of the tail uses it.
	whole map[queue.Rewrite]bool
	// refreshing is held while reader.unsettled is determined.
	refreshing sync.Mutex
}

// staleEntry is an entry whose document compaction has dropped.
type staleEntry struct {
	id    []byte
	entry indexEntry
}

func newSettler(s *shared, r *reader) *settler {
	return &settler{
		shared: s, reader: r, wake: make(chan struct{}, 1), gone: make(chan staleEntry, rare.Limit("gone entries", maxGoneEntries, 1)),
		whole: make(map[queue.Rewrite]bool),
	}
}

// enter is called by the tail before it reads a rewrite from an address on.
func (s *settler) enter(rewrite queue.Rewrite, from queue.Address) error {
	if from.Compare(queue.Address{Segment: rewrite.First}) <= 0 {
		s.whole[rewrite] = true
	}
	rewrites, err := s.queue.Rewrites()
	if err != nil {
		return err
	}
	at := queue.Position{Queue: rewrite.Settled.Queue, Next: from}
	if !isSettledAt(rewrite.Settled, at) {
		s.health.entered(rewrite.Settled.Next)
	}
	var found []segmentRun
	for _, r := range rewrites {
		if from.Compare(queue.Address{Segment: r.First}) > 0 && !s.whole[r] && !isSettledAt(r.Settled, at) {
			found = append(found, segmentRun{r.First, r.Last})
		}
	}
	if len(found) == 0 {
		return nil
	}
	s.indexing.Lock()
	s.indexing.state.unsettled = s.indexing.state.unsettled.with(found...)
	s.indexing.marks++
	s.indexing.Unlock()
	if err := s.refresh(); err != nil {
		return err
	}
	return s.queue.DropReplaced() // open files may have the dropped documents
}

// resume determines, when the store is opened, which rewrites the tail may have read without what
// superseded the entries that they lack: it may have read these entries before the rewrite, but
// that is not known any more.
func (s *settler) resume() error {
	position := s.health.tailState().position
	rewrites, err := s.queue.Rewrites()
	for _, r := range rewrites {
		if r.First <= position.Next.Segment && r.Settled.Queue == position.Queue {
			s.health.entered(r.Settled.Next)
		}
	}
	return err
}

// isSettledAt reports whether an index at a position includes the entries that made a
// compaction leave out documents of a file. The Settled of a file of another queue is of no
// concern; it is zero if the file cannot be read.
func isSettledAt(settled, at queue.Position) bool {
	return !settled.IsZero() && (settled.Queue != at.Queue || at.Next.Compare(settled.Next) >= 0)
}

// refresh determines reader.unsettled: the marked segments, and those of each rewrite whose
// Settled the index has not reached.
func (s *settler) refresh() error {
	s.refreshing.Lock()
	defer s.refreshing.Unlock()
	position := s.health.tailState().position
	rewrites, err := s.queue.Rewrites()
	if err != nil {
		return err
	}
	runs := s.indexState().unsettled
	for _, r := range rewrites {
		if !isSettledAt(r.Settled, position) {
			runs = runs.with(segmentRun{r.First, r.Last})
		}
	}
	if len(runs) == 0 {
		s.reader.unsettled.Store(nil)
		return nil
	}
	s.reader.unsettled.Store(&runs)
	return nil
}

// runSettle settles until the collection is closed.
func (s *settler) runSettle(ctx context.Context) {
	interval := s.options.VerifyInterval
	if interval <= 0 {
		interval = DefaultVerifyInterval
	}
	timer := time.NewTimer(interval)
	defer timer.Stop()
	problem := ""
	for {
		started, pause, wake := time.Now(), interval, s.wake
		err := s.settle(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			problem = ""
		default:
			if errors.Is(err, errIndex) {
				s.recordFault(err, queue.Address{})
			}
			if err.Error() != problem {
				problem = err.Error()
				s.logger.Warn("removing stale entries from the index failed; retrying", "error", err)
			}
			// Each attempt scans the index, and the tail catches up often.
			pause, wake = max(interval, settleRest*time.Since(started)), nil
		}
		timer.Reset(pause)
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
				waiting = false
			case <-wake:
				waiting = false
			case stale := <-s.gone:
				if _, err := s.remove([]staleEntry{stale}); err != nil {
					s.logger.Warn("removing a stale entry from the index failed", "error", err)
				}
			}
		}
	}
}

// caughtUp is called by the tail when no entry is waiting.
func (s *settler) caughtUp() {
	if s.reader.unsettled.Load() == nil {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default: // the settler is about to look
	}
}

// settle removes the stale entries of the unsettled segments, and then the mark of these. It
// does nothing until the tail has caught up.
func (s *settler) settle(ctx context.Context) error {
	if err := s.refresh(); err != nil {
		return err
	}
	s.indexing.Lock()
	marked, marks := s.indexing.state.unsettled, s.indexing.marks
	s.indexing.Unlock()
	if len(marked) == 0 || !s.health.tailState().current || !s.health.continues.Load() {
		return nil
	}
	if err := s.queue.DropReplaced(); err != nil { // they have dropped documents
		return err
	}
	removed, complete, err := s.sweep(ctx, &marked)
	if err != nil || !complete {
		return err
	}
	s.logger.Info("removed index entries of documents that were deleted while the index was not updated", "entries", removed)
	return s.unmark(marks)
}

// unmark removes the mark of the unsettled segments, unless the tail has marked segments after
// the given number of marks: also the same ones, which may have been rewritten since.
func (s *settler) unmark(marks uint64) error {
	s.indexing.Lock()
	if s.indexing.marks == marks {
		state := indexState{position: s.indexing.state.position}
		var batch lsm.Batch
		err := state.putIn(&batch)
		if err == nil {
			err = s.index.Apply(&batch)
		}
		if err != nil {
			s.indexing.Unlock()
			return err
		}
		s.indexing.state = state
	}
	s.indexing.Unlock()
	return s.refresh()
}

// sweep removes the stale entries of segments. It scans the index once, in steps, while the
// tail has caught up, and pauses after each step for the time the step took. The error is that
// of an entry whose document could not be examined, if there was one. It is not complete if the
// queue got another history meanwhile.
func (s *settler) sweep(ctx context.Context, segments *unsettled) (removed int, complete bool, err error) {
	var unreadable error // the first one
	for after := []byte(nil); ; {
		if err := s.health.waitUntil(ctx, s.health.tailIdle); err != nil {
			return removed, false, err
		}
		started := time.Now()
		entries, last, err := s.entriesIn(segments, after)
		if err != nil {
			return removed, false, err
		}
		stale, err := s.stale(entries)
		if unreadable == nil {
			unreadable = err
		}
		if !s.health.continues.Load() { // the files may belong to another history
			return removed, false, nil
		}
		n, err := s.remove(stale)
		removed += n
		if err != nil || last == nil {
			return removed, true, cmp.Or(err, unreadable)
		}
		after = last
		if !ctxtime.Sleep(ctx, rare.Pause("sweep", time.Since(started), longSweepPause)) {
			return removed, false, ctx.Err()
		}
	}
}

// entriesIn returns the entries of segments among the next entries of the index, and the
// last id examined, nil at the end of the index.
func (s *settler) entriesIn(segments *unsettled, after []byte) (found []staleEntry, last []byte, err error) {
	it := s.index.NewIter(bounds(&docservice.ScanOptions{After: after}))
	defer func() { _ = it.Close() }() // it.Err was checked
	for range rare.Limit("sweep", sweepStepEntries, 8) {
		if !it.Next() {
			return found, nil, indexError(it.Err())
		}
		entry, err := decodeIndexEntry(it.Value())
		if err != nil {
			return nil, nil, indexError(err)
		}
		if segments.holds(entry.address) {
			found = append(found, staleEntry{bytes.Clone(it.Key()), entry})
		}
		last = append(last[:0], it.Key()...)
	}
	return found, last, nil
}

// stale returns the entries whose documents compaction has dropped, and the first error that leaves
// this unknown for an entry.
func (s *settler) stale(entries []staleEntry) (stale []staleEntry, unreadable error) {
	slices.SortFunc(entries, func(a, b staleEntry) int { return a.entry.address.Compare(b.entry.address) })
	position := s.health.tailState().position
	for _, e := range entries {
		_, err := s.queue.DecodedBytes(e.entry.address)
		var gone *queue.GoneError
		switch {
		case errors.As(err, &gone) && isSettled(gone, position):
			stale = append(stale, e)
		case err != nil && !isWithdrawn(err) && unreadable == nil:
			unreadable = err
		}
	}
	return stale, unreadable
}

// remove removes stale entries, except those replaced meanwhile.
func (s *settler) remove(stale []staleEntry) (removed int, err error) {
	if len(stale) == 0 {
		return 0, nil
	}
	s.indexing.Lock()
	defer s.indexing.Unlock()
	var batch lsm.Batch
	for _, e := range stale {
		entry, err := s.reader.lookUpVerified(e.id)
		switch {
		case errors.Is(err, lsm.ErrNotFound):
		case err != nil:
			return 0, err
		case entry == e.entry:
			if err := batch.Delete(e.id); err != nil {
				return 0, err
			}
		}
	}
	return batch.Len(), s.index.Apply(&batch)
}

// found is called when a fetch has proved an entry stale.
func (s *settler) found(id []byte, entry indexEntry) {
	select {
	case s.gone <- staleEntry{bytes.Clone(id), entry}:
	default: // a later fetch finds it again
	}
}
