package lsm

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/lsm/internal/memtable"
	"docstore/lsm/internal/table"
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

// maxFusedUnits is the maximum size in memtables of a flush that also merges. When the
// rule would merge the new table at once, a combined pass saves writing and reading it:
// three of eight flushes begin a merge of at most this size. A larger one would delay
// the next flush, and so writers, for too long.
const maxFusedUnits = 4

// flush is a flush in progress. inputs and units change only under scheduler.mu.
type flush struct {
	memtable *memtable.Memtable
	number   uint64          // of the table
	inputs   []*table.Reader // newest tables, merged with the memtable
	units    uint64          // size of the output in memtables
	oldest   bool            // no table is older than the inputs
}

// merge is a merge in progress. It does not reference a view, which would retain
// memtables, too: a merge reads through its own mappings, and no other goroutine
// removes its inputs from the list.
type merge struct {
	inputs []*table.Reader // newest first
	number uint64          // of the output table
	bytes  uint64          // of the inputs' keys and values
	done   atomic.Uint64
	begun  time.Time
}

// errClosing aborts a flush or merge when the DB closes.
var errClosing = errors.New("lsm: closing")

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

// MergeProgress describes a merge in progress. It writes at most InputBytes, less if
// keys were overwritten.
type MergeProgress struct {
	Tables       []uint64 // their numbers, newest first
	InputBytes   uint64   // of keys and values in them
	WrittenBytes uint64   // of keys and values so far
	Begun        time.Time
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

// units returns the sizes of tables in memtables.
func (s *scheduler) units(tables []*table.Reader) []uint64 {
	units := make([]uint64, len(tables))
	for i, t := range tables {
		cost := memtable.Cost(t.Facts.Entries, t.Facts.KeyBytes+t.Facts.ValueBytes)
		units[i] = tableUnits(cost, uint64(s.memtableBytes()))
	}
	return units
}

// memtableDue reports whether a memtable must be flushed: it is full, or
// memtableWriter.due is set. Called under mu.
func (s *scheduler) memtableDue() bool {
	return len(s.current.Load().memtables) > 1 || s.due.Load()
}

// flushDue reports whether a memtable must be flushed and the number of tables permits
// it. Called under mu.
func (s *scheduler) flushDue() bool {
	return s.memtableDue() &&
		(s.rule.excess(s.units(s.current.Load().tables)) < maxExcess || s.mu.merge.err != nil)
}

// beginFlush claims the inputs of the next flush; nil if no memtable waits.
func (s *scheduler) beginFlush() (*flush, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.current.Load()
	if len(v.memtables) == 1 {
		return nil, nil
	}
	if err := s.mu.merge.err; err != nil && s.rule.excess(s.units(v.tables)) >= maxExcess {
		return nil, errors.Wrapf(err, "lsm: %d tables and none can be merged", len(v.tables))
	}
	f := &flush{memtable: v.memtables[len(v.memtables)-1], number: s.takeNumber()}
	f.inputs = s.fused(v.tables, f.memtable)
	f.units = 1 + sumUnits(s.units(f.inputs))
	f.oldest = len(f.inputs) == len(v.tables)
	s.mu.activeFlush = f
	return f, nil
}

// fused returns the tables that the rule would merge at once with the memtable's table,
// if they are small and no other merge uses them. Called under mu.
func (s *scheduler) fused(tables []*table.Reader, m *memtable.Memtable) []*table.Reader {
	if m.Empty() || m.Used() > s.memtableBytes() || s.mu.merge.err != nil {
		return nil
	}
	limit := uint64(noLimit)
	for _, other := range s.mu.merges {
		if i := slices.Index(tables, other.inputs[0]); i >= 0 { // else it has completed
			tables = tables[:i]
			limit = min(limit, sumUnits(s.units(other.inputs)))
		}
	}
	units := append([]uint64{1}, s.units(tables)...)
	begin, end := s.rule.plan(units, limit)
	if begin == 0 && end > 1 && sumUnits(units[:end]) <= maxFusedUnits {
		return tables[:end-1]
	}
	return nil
}

// dropInputs restricts the flush to its memtable.
func (s *scheduler) dropInputs(f *flush) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.inputs, f.units, f.number = nil, 1, s.takeNumber()
	f.oldest = len(s.current.Load().tables) == 0
}

// endFlush releases the input tables for merges.
func (s *scheduler) endFlush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.activeFlush = nil
	s.mu.changed.Broadcast()
}

// mergeDue reports whether the rule requires a merge. Called under mu.
func (s *scheduler) mergeDue() bool {
	inputs, _ := s.dueMerge(nil)
	return len(inputs) > 0
}

// dueMerge returns the tables of the due merge, and whether no table is older. Inputs
// of the current flush are excluded. If a merge of the tables underWay is running, it
// considers only newer tables with a smaller total size. Called under mu.
func (s *scheduler) dueMerge(underWay []*table.Reader) (inputs []*table.Reader, oldest bool) {
	tables := s.current.Load().tables
	end, limit := len(tables), uint64(noLimit)
	if underWay != nil {
		end, limit = slices.Index(tables, underWay[0]), sumUnits(s.units(underWay))
	}
	claimed := 0
	if f := s.mu.activeFlush; f != nil {
		claimed = len(f.inputs)
	}
	free := tables[claimed:end]
	first, behind := s.rule.plan(s.units(free), limit)
	return free[first:behind], underWay == nil && behind == len(free)
}

// beginMerge registers the due merge, if any.
func (s *scheduler) beginMerge(underWay []*table.Reader) (m *merge, oldest bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	inputs, oldest := s.dueMerge(underWay)
	if len(inputs) == 0 {
		return nil, false
	}
	m = &merge{inputs: inputs, number: s.takeNumber(), begun: time.Now()}
	for _, t := range inputs {
		m.bytes += t.Facts.KeyBytes + t.Facts.ValueBytes
	}
	s.mu.merges = append(s.mu.merges, m)
	return m, oldest
}

func (s *scheduler) endMerge(m *merge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.merges = slices.DeleteFunc(s.mu.merges, func(other *merge) bool { return other == m })
}

// pressure returns the part of pace that flushes and merges determine.
func (s *scheduler) pressure() pace {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.current.Load()
	p := pace{
		flush:   s.mu.flushTook,
		waiting: len(v.memtables) > 1,
		excess:  s.rule.excess(s.units(v.tables)),
	}
	if f := s.mu.activeFlush; f != nil {
		p.flush *= time.Duration(f.units)
	}
	return p
}

// noteFlush records the duration of a flush.
func (s *scheduler) noteFlush(f *flush, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.flushTook = expectFlush(s.mu.flushTook, took/time.Duration(f.units))
}

// setView replaces the current view and returns the old one, which the caller must
// retire outside mu. Called under mu.
func (s *scheduler) setView(memtables []*memtable.Memtable, tables []*table.Reader) (old *view) {
	old = s.current.Swap(newView(memtables, tables))
	s.mu.changed.Broadcast()
	return old
}

// replaceMemtables replaces the list of memtables by the result of fn, which must have
// all memtables of the list except an empty one. Called under committer.mu.
func (s *scheduler) replaceMemtables(fn func(memtables []*memtable.Memtable) []*memtable.Memtable) {
	s.mu.Lock()
	v := s.current.Load()
	old := s.setView(fn(v.memtables), v.tables)
	s.mu.Unlock()
	old.retire()
}

// publish replaces the tables of the view and returns the old view. If flushed is set, it
// also removes the oldest memtable.
func (s *scheduler) publish(tables []*table.Reader, flushed bool) (old *view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	memtables := s.current.Load().memtables
	if flushed {
		memtables = memtables[:len(memtables)-1]
		s.mu.activeFlush = nil // its inputs are no longer in the list of tables
	}
	return s.setView(memtables, tables)
}

// takeNumber returns the number of a new file. Called under mu.
func (s *scheduler) takeNumber() uint64 {
	s.mu.nextNumber++
	return s.mu.nextNumber - 1
}

// beginLog returns the number of a new log, and notes the log in its memtable, so that a
// manifest written from now on keeps it.
func (s *scheduler) beginLog(m *memtable.Memtable) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	number := s.takeNumber()
	if m.Log == 0 {
		m.Log = number
	}
	return number
}

// returnNumber takes back a number that no file has, unless a higher one is in use.
func (s *scheduler) returnNumber(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.nextNumber == number+1 {
		s.mu.nextNumber = number
	}
}

// peekNumber returns the number of the next file.
func (s *scheduler) peekNumber() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.nextNumber
}

// flushError returns the error of the last flush.
func (s *scheduler) flushError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.flush.err
}
