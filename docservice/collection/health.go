package collection

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"docstore/queue"
)

// health is the state of a store that decides its answers: the progress of the tail, the
// head file and the known faults. The follower, the verifier and failed fetches report
// events to it. After each event it determines whether the index is complete (gap) and
// wakes the goroutines that wait for a change. Only its methods lock mu.
type health struct {
	options *Options
	behind  *atomic.Bool    // that of the collection
	alive   context.Context // until the store is stopped

	// gap is why the index may lack an id that the queue holds; nil: the index is complete.
	// stateChanged stores it.
	gap     atomic.Pointer[gap]
	recheck chan struct{} // wakes the background pass: a fetch has found damage
	// continues: the tail has found that the files here continue what the index has read, and
	// that none of that was truncated. Until then, the cache may hold documents that the queue
	// does not have.
	continues atomic.Bool

	mu struct {
		sync.Mutex
		tail   tailState
		faults faultList
		// reached: the tail has read the queue to its end since it last stopped, and since the
		// end was last unknown; ends counts how often that was so.
		reached bool
		ends    uint64
		// stoppedBy is the error behind the fault that stops the tail, nil if it runs.
		stoppedBy error
		head      headState
		// settled is the end of what superseded the entries that the rewrites lack which the tail
		// has read. Before it, the index has neither these entries nor the later ones.
		settled queue.Address
		// suspect holds the paths of files in which a fetch has found damage since the
		// background pass last verified them.
		suspect map[string]bool
		// awaited are quarantined files that have not been copied again.
		awaited map[segmentKey]segmentFile
		// changed is closed and replaced when tail or faults change.
		changed chan struct{}
	}
}

// newHealth returns the state of a store whose index has followed the queue to a position.
// Its tail has not caught up, so no id is "not found".
func newHealth(alive context.Context, options *Options, behind *atomic.Bool, position queue.Position) *health {
	h := &health{options: options, behind: behind, alive: alive, recheck: make(chan struct{}, 1)}
	h.mu.suspect = make(map[string]bool)
	h.mu.awaited = make(map[segmentKey]segmentFile)
	h.mu.changed = make(chan struct{})
	h.mu.tail.position = position
	h.stateChanged()
	return h
}

// inherit copies the state of a store that has read the same queue in another directory.
func (h *health) inherit(from *health) {
	from.mu.Lock()
	tail, reached, faults, settled := from.mu.tail, from.mu.reached, from.mu.faults, from.mu.settled
	from.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.tail, h.mu.reached, h.mu.settled = tail, reached, settled
	h.mu.tail.current = false
	h.continues.Store(from.continues.Load())
	h.mu.faults.index, h.mu.faults.lost = faults.index, faults.lost
	h.stateChanged()
}

// entered records that the tail reads a rewrite, which lacks entries because of later ones
// before settled.
func (h *health) entered(settled queue.Address) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if settled.Compare(h.mu.settled) > 0 {
		h.mu.settled = settled
		h.stateChanged()
	}
}

// waitUntil waits until a condition holds. It evaluates the condition with h.mu locked
// after each change of the state.
func (h *health) waitUntil(ctx context.Context, holds func() bool) error {
	for {
		h.mu.Lock()
		done, changed := holds(), h.mu.changed
		h.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-h.alive.Done():
			return ErrClosed
		}
	}
}

// stateChanged recomputes the gap from the state of tail and faults, and wakes the waiters.
// h.mu must be locked.
func (h *health) stateChanged() {
	h.gap.Store(h.knowledge().gap())
	close(h.mu.changed)
	h.mu.changed = make(chan struct{})
}

// knowledge returns the state that decides whether the index is complete. h.mu must be
// locked.
func (h *health) knowledge() knowledge {
	return knowledge{
		reached:    h.mu.reached,
		stopped:    h.mu.faults.tail != nil,
		forked:     isFork(h.mu.stoppedBy),
		truncated:  isTruncation(h.mu.stoppedBy),
		damaged:    h.mu.faults.index != nil,
		headUnread: h.mu.head.failure != nil && !h.mu.reached,
		stale:      h.mu.head.isStale(h.options.Now(), h.options.MaxStaleness),
		behind:     h.behind.Load(),
		within:     h.mu.tail.position.Next.Compare(h.mu.settled) < 0,
	}
}

// tailState returns the progress of the tail.
func (h *health) tailState() tailState {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.tail
}

// includes reports whether the index includes the entry at an address. h.mu must be locked.
func (h *health) includes(at queue.Address) bool { return at.Compare(h.mu.tail.position.Next) < 0 }

// tailIdle reports whether the tail has caught up or is stopped. h.mu must be locked.
func (h *health) tailIdle() bool {
	return h.mu.tail.current || h.mu.tail.idle || h.mu.faults.tail != nil
}

// takeSuspect reports whether a fetch has found damage in the file since the last call.
func (h *health) takeSuspect(f segmentFile) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	suspects := len(h.mu.suspect)
	maps.DeleteFunc(h.mu.suspect, func(path string, _ bool) bool { return sameFiles(path, f) })
	return len(h.mu.suspect) < suspects
}

// addSuspect makes the verifier verify a file.
func (h *health) addSuspect(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.suspect[path] = true
}

// awaits reports whether a quarantined segment is missing at or after a place in the queue.
// h.mu must be locked.
func (h *health) awaits(from queue.SegmentID) bool {
	for _, f := range h.mu.awaited {
		if f.last >= from {
			return true
		}
	}
	return false
}

// stopped reports whether an error of a kind has stopped the tail.
func (h *health) stopped(isKind func(error) bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return isKind(h.mu.stoppedBy)
}

// forkedFor reports whether the tail has been stopped by a fork for at least d.
func (h *health) forkedFor(d time.Duration, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return isFork(h.mu.stoppedBy) && h.mu.faults.tail != nil && now.Sub(h.mu.faults.tail.Since) >= d
}

// historyChanged reports whether the queue may not have the entries any more that the index has
// read: they were truncated, or the files end before them, as those of an older copy do. Then the
// head file does not name these entries.
func (h *health) historyChanged() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	isOlder := !h.options.Published && h.mu.head.target.Next.Compare(h.mu.tail.position.Next) < 0
	return isTruncation(h.mu.stoppedBy) || isFork(h.mu.stoppedBy) && isOlder
}

// reached reports whether the tail has read the queue to its end since it last stopped. The answer
// holds while ends is the same.
func (h *health) reached() (reached bool, ends uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.reached, h.mu.ends
}

// knowsHead reports whether a head file has named an entry.
func (h *health) knowsHead() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.mu.head.target.IsZero()
}

// queueIsEmpty reports whether a head file is required and says that the queue has no entries.
func (h *health) queueIsEmpty() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.options.Published && h.mu.head.isEmpty()
}

// committed records that entries up to next are in the index, which were appended between two times. It reports whether a fault
// had stopped the tail.
func (h *health) committed(next queue.Position, entries int, oldest, appended time.Time) (resumed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	tail := &h.mu.tail
	tail.position, tail.appended, tail.unread = next, appended, time.Time{}
	tail.applied += uint64(entries)
	if tail.reachedEnd {
		now := h.options.Now()
		tail.visibleAfter = max(0, now.Sub(appended))
		tail.freshness.add(now.Sub(oldest))
	}
	tail.current, tail.idle = false, false
	h.mu.stoppedBy = nil
	h.continues.Store(true)
	resumed = h.mu.faults.clearTail()
	h.stateChanged()
	return resumed
}

// unread records when the first entry that could not be written to the index was appended.
func (h *health) unread(appended time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.tail.unread = appended
}

// waitsSince returns when the oldest data that is not in the index was appended, as far as it
// is known; the zero time if it is not.
func (h *health) waitsSince() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	tail, stopped := &h.mu.tail, h.mu.faults.tail
	switch {
	case tail.current:
		return time.Time{}
	case !tail.unread.IsZero():
		return tail.unread
	case tail.appended.IsZero() && stopped != nil: // since the start
		return stopped.Since
	}
	return tail.appended
}

// caughtUp records that no entry is waiting at a position. It reports whether a fault had
// stopped the tail and no later segment is quarantined.
func (h *health) caughtUp(at queue.Position) (resumed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.tail.current = true
	h.mu.stoppedBy = nil
	h.continues.Store(true)
	resumed = h.mu.faults.clearTail() && !h.awaits(at.Next.Segment)
	h.stateChanged()
	return resumed
}

// reachedEnd records that the tail has read the queue to its end, if it has caught up at
// the position, the position is at the end of the segments here (atEnd) and not before the
// end that the head file named, and no later segment is quarantined. It reports whether
// this made the collection ready. If the end has been unknown since ends was read, it does
// nothing: atEnd was determined too early.
func (h *health) reachedEnd(at queue.Position, atEnd bool, ends uint64) (ready, valid bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ends != h.mu.ends {
		return false, false
	}
	if atEnd && h.mu.tail.current && h.mu.tail.position.SamePlace(at) && h.mu.head.reaches(at, h.options.Published) && !h.awaits(at.Next.Segment) {
		h.mu.reached, h.mu.tail.reachedEnd = true, true
	}
	before := h.gap.Load()
	h.stateChanged()
	ready = before != nil && h.gap.Load() == nil
	if ready {
		h.mu.faults.lost = nil
	}
	return ready, true
}

// endUnknown records that the end of the queue has changed, and perhaps the collection's
// behind.
func (h *health) endUnknown() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.reached = false
	h.mu.ends++
	h.stateChanged()
}

// tailStopped records the error that has stopped the tail. It reports whether the fault is
// new.
func (h *health) tailStopped(err error, fault Fault) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.reached, h.mu.stoppedBy = false, err
	if isFork(err) || isTruncation(err) {
		h.continues.Store(false)
	}
	h.mu.tail.current = false
	news = h.mu.faults.setTail(fault)
	h.stateChanged()
	return news
}

// detectIdle marks the tail as idle if it has applied no entry since the last call, which
// returned applied. It returns the entries applied so far.
func (h *health) detectIdle(applied uint64) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.tail.idle = h.mu.tail.applied == applied
	return h.mu.tail.applied
}

// headRead records the contents of the head file, nil if there is none for this queue. It
// reports whether the collection may have become ready.
func (h *health) headRead(head *queue.Head) (nearer bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	state := &h.mu.head
	failed, target, first := state.failure != nil, state.target, head != nil && state.written.IsZero()
	state.failure, h.mu.faults.head = nil, nil
	if head != nil {
		if target.IsZero() || !head.End.IsZero() && head.End.Next.Compare(target.Next) < 0 {
			state.target = head.End
		}
		state.written = head.Time
	}
	h.stateChanged()
	return failed || first || target != state.target
}

// headFailed records that reading the head file failed. It reports whether the fault is
// new.
func (h *health) headFailed(err error, fault *Fault) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news = h.mu.head.failure == nil
	h.mu.head.failure = err
	if news {
		h.mu.faults.head = fault
	}
	h.stateChanged()
	return news
}

// addFault records a fault that makes documents unavailable and reports whether it is new.
// If suspect is set the verifier is to read the file again.
func (h *health) addFault(fault Fault, suspect bool) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news = h.mu.faults.add(fault)
	if news && suspect {
		h.mu.suspect[fault.Path] = true
	}
	h.stateChanged()
	return news
}

// wakeVerifier starts the next background pass at once.
func (h *health) wakeVerifier() {
	select {
	case h.recheck <- struct{}{}:
	default: // a pass is already pending
	}
}

// replaceFaults is faultList.replace.
func (h *health) replaceFaults(f segmentFile, found []Fault) (news []Fault, repaired bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news, repaired = h.mu.faults.replace(f, found)
	h.stateChanged()
	return news, repaired
}

// dropSupersededFaults is faultList.dropSuperseded.
func (h *health) dropSupersededFaults(files []segmentFile) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.faults.dropSuperseded(files)
}

// setLost records why the previous index was discarded.
func (h *health) setLost(fault *Fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.faults.lost = fault
}

// hasFault reports whether a fault of the file is known.
func (h *health) hasFault(f segmentFile) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.faults.has(f)
}

// listFaults is faultList.list.
func (h *health) listFaults() (faults []Fault, more int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.faults.list()
}

// indexDamaged reports whether damage of the index is known.
func (h *health) indexDamaged() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.faults.index != nil
}

// damagedFiles returns the files with wrong bytes, each with one of its faults.
func (h *health) damagedFiles() map[string]Fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	found := make(map[string]Fault)
	if tail := h.mu.faults.tail; tail != nil && tail.content {
		found[tail.Path] = *tail
	}
	for _, faults := range h.mu.faults.segments {
		for _, f := range faults {
			if _, known := found[f.Path]; f.content && !known {
				found[f.Path] = f
			}
		}
	}
	return found
}

// isReadAndSound reports whether the tail runs and has reached the file, and no fault of it
// is known.
func (h *health) isReadAndSound(f segmentFile) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.mu.faults.has(f) && h.mu.faults.tail == nil && f.id <= h.mu.tail.position.Next.Segment
}

// beginQuarantine records that a file is about to be renamed: its unread entries are unknown
// from then on. undo takes that back if the rename fails.
func (h *health) beginQuarantine(f segmentFile, end queue.Position) (undo func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, awaited := h.mu.awaited[f.segmentKey]
	h.mu.awaited[f.segmentKey] = f
	if h.mu.tail.position.Next.Compare(end.Next) < 0 {
		h.mu.reached = false
	}
	h.stateChanged()
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !awaited {
			delete(h.mu.awaited, f.segmentKey)
		}
		h.stateChanged()
	}
}

// await records a file that an earlier run quarantined.
func (h *health) await(f segmentFile, fault Fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.awaited[f.segmentKey] = f
	h.mu.faults.replace(f, []Fault{fault})
	h.stateChanged()
}

// arrived removes the awaited files that have arrived, or are superseded by a rewrite. It
// reports whether there was one.
func (h *health) arrived(files []segmentFile) (arrived bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, awaited := range h.mu.awaited {
		i := slices.IndexFunc(files, func(there segmentFile) bool { return there.supersedes(awaited) })
		if i < 0 {
			continue
		}
		delete(h.mu.awaited, key)
		arrived = true
		if !files[i].sealed || files[i].segmentKey != key { // otherwise the verification decides
			h.mu.faults.replace(awaited, nil)
		}
	}
	if arrived {
		h.stateChanged()
	}
	return arrived
}
