package lsm

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/errors"
)

const (
	// Delay before a failed task is retried, doubled each time.
	firstRetry = 50 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// scheduler decides when memtables are flushed, tables are merged and files are cleaned
// up, and runs these tasks. It owns the state that the decisions depend on: the current
// view, the numbers of files, and the tables that flushes and merges in progress use.
// The choice of tables is a pure function of their sizes (planMerge).
//
// Invariants:
//
//   - The view changes only under mu.
//   - A table that a flush or merge uses stays in the view until that flush or merge is
//     installed, and no other flush or merge uses it.
//   - changed is signalled after any change of mu or of the view.
//   - After close returns, no task runs.
//
// Lock order: committer.mu, mu.
type scheduler struct {
	env           *environment
	counters      *counters
	rule          MergeRule
	memtableBytes func() int64 // size of a full memtable
	due           *atomic.Bool // of the memtableWriter
	ran           func()       // called after each run of a task

	// current is the newest view; nil once the DB is closed.
	current atomic.Pointer[view]

	mu struct {
		sync.Mutex
		changed sync.Cond

		nextNumber uint64        // of the next file
		flushTook  time.Duration // recent flush time per memtable unit

		flush, merge, cleanup task
		activeFlush           *flush   // nil if none
		merges                []*merge // a large merge and the merges for which it pauses
		closing               bool
	}
	closing    chan struct{} // closed when mu.closing is set
	background sync.WaitGroup
}

// task is a kind of background work, which one goroutine runs.
type task struct {
	name string
	due  func() bool // reports whether there is work; called under scheduler.mu
	run  func() error

	// Guarded by scheduler.mu.
	busy bool
	err  error // of the last run
}

// start starts the tasks.
func (s *scheduler) start(flush, merge, cleanup func() error, cleanupDue func() bool) {
	s.mu.flush = task{name: "flush", due: s.flushDue, run: flush}
	s.mu.merge = task{name: "merge", due: s.mergeDue, run: merge}
	s.mu.cleanup = task{name: "cleanup", due: cleanupDue, run: cleanup}
	for _, t := range []*task{&s.mu.flush, &s.mu.merge, &s.mu.cleanup} {
		s.background.Go(func() { s.work(t) })
	}
}

// work runs a task whenever it is due, until close is called. It retries a failed task with
// increasing delays.
func (s *scheduler) work(t *task) {
	retry := firstRetry
	for {
		s.mu.Lock()
		for !t.due() && !s.mu.closing {
			s.mu.changed.Wait()
		}
		if s.mu.closing {
			s.mu.Unlock()
			return
		}
		t.busy = true
		s.mu.Unlock()

		err := t.run()

		s.mu.Lock()
		t.busy = false
		if errors.Is(err, errClosing) {
			err = nil
		}
		t.err = err
		s.mu.changed.Broadcast()
		s.mu.Unlock()
		s.ran()
		if err == nil {
			retry = firstRetry
			continue
		}
		s.counters.failures.Add(1)
		s.env.Logger.Error("a "+t.name+" failed and will be tried again",
			"dir", s.env.dir, "error", err, "after", retry)
		select {
		case <-s.closing:
		case <-time.After(retry):
			retry = min(2*retry, lastRetry)
		}
	}
}

func (s *scheduler) isClosing() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// close stops the tasks. The caller must wait for background before it frees what the
// tasks use.
func (s *scheduler) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closing = true
	close(s.closing)
	s.mu.changed.Broadcast()
}

// waitIdle returns when no task runs or is due. If a task fails, it returns the error; if
// ctx ends, the error of ctx.
func (s *scheduler) waitIdle(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.wake)
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.mu.closing {
			return ErrClosed
		}
		if err := errors.CombineErrors(s.mu.flush.err, s.mu.merge.err); err != nil {
			return err
		}
		busy := s.mu.flush.busy || s.mu.merge.busy || s.mu.cleanup.busy
		begin, end := s.rule.plan(s.units(s.current.Load().tables), noLimit)
		if !busy && begin == end && !s.memtableDue() && !s.mu.cleanup.due() {
			return nil
		}
		s.mu.changed.Wait()
	}
}

// awaitFlush returns when all writes up to a sequence number are in tables, or the last
// flush failed.
func (s *scheduler) awaitFlush(through uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.mu.closing {
		memtables := s.current.Load().memtables
		oldest := memtables[len(memtables)-1]
		if oldest.Empty() || oldest.First() > through {
			return nil
		}
		if err := s.mu.flush.err; err != nil {
			return err
		}
		s.mu.changed.Wait()
	}
	return ErrClosed
}

// wake makes all goroutines that wait for a change of mu or of the view look again.
func (s *scheduler) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.changed.Broadcast()
}

// progress describes the merges in progress, and returns the errors of the last flush and
// merge.
func (s *scheduler) progress() (merges []MergeProgress, flushErr, mergeErr error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.mu.merges {
		p := MergeProgress{InputBytes: m.bytes, WrittenBytes: m.done.Load(), Begun: m.begun}
		for _, t := range m.inputs {
			p.Tables = append(p.Tables, t.Facts.Number)
		}
		merges = append(merges, p)
	}
	return merges, s.mu.flush.err, s.mu.merge.err
}
