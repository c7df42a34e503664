package docservice

import (
	"context"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/queue"
)

// The head file says how far the queue reached at its source when the file was written,
// and docstore-sync copies it before any segment. So a machine that starts empty, or that
// returns after an absence, knows that it lacks documents: the collection is ready when
// the tail has reached the end that the first head file named. Later ones do not take
// that back, but for MaxStaleness. A directory without a head file, from an older updater
// or a plain copy, is ready at the end of its segments.

// headState is what the head file has said.
type headState struct {
	// target is what the tail must reach for the collection to be ready: End of the
	// first head file that was read, or of a later one that ends before it, as after
	// another history has been replaced. Zero: none has been read.
	target queue.Position
	// written is the time in the last one read.
	written time.Time
	// failure is why the file could not be read, nil if it was read or does not exist.
	failure error
}

// runHead reads the head file from time to time, and notes whether the tail is idle.
func (s *store) runHead(ctx context.Context) {
	applied := uint64(0)
	for sleep(ctx, s.options.RetryInterval) {
		s.mu.Lock()
		s.mu.tail.idle = s.mu.tail.applied == applied
		applied = s.mu.tail.applied
		s.mu.Unlock()
		if s.readHead() {
			at := s.tailState().position // with nothing new behind it the tail has no reason to say so
			s.reachedEnd(at, s.atEnd(at))
		}
	}
}

// readHead reads the head file and notes what it says. That of another queue says nothing
// about this one. It reports whether the collection may be ready because of it.
func (s *store) readHead() (nearer bool) {
	head, err := queue.ReadHead(s.options.FS, s.queueDir)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &s.mu.head
	failed, target := h.failure != nil, h.target
	h.failure = nil
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		h.failure = err
		if !failed {
			s.mu.faults.head = &Fault{Path: filepath.Join(s.queueDir, queue.HeadName), Reason: err.Error(), Since: s.options.Now()}
			s.logger.Error("the head file of the queue cannot be read", "path", s.mu.faults.head.Path, "error", err)
		}
	case s.queueID.Load() == nil || *s.queueID.Load() == head.Queue:
		if h.target.IsZero() || !head.End.IsZero() && head.End.Next.Compare(h.target.Next) < 0 {
			h.target = head.End
		}
		h.written = head.Time
	}
	if h.failure == nil {
		s.mu.faults.head = nil
	}
	s.stateChanged()
	return failed && h.failure == nil || target != h.target
}

// reaches reports whether a position is at or behind the target. While the file cannot be
// read and none was read before, none is.
func (h *headState) reaches(at queue.Position) bool {
	if h.target.IsZero() {
		return h.failure == nil
	}
	return at.Queue == h.target.Queue && at.Next.Compare(h.target.Next) >= 0
}

// isStale reports whether the last head file is older than a limit; 0 is none.
func (h *headState) isStale(now time.Time, limit time.Duration) bool {
	return limit > 0 && now.Sub(h.written) > limit
}
