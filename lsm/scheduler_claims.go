package lsm

import (
	"slices"
	"time"

	"docstore/lsm/internal/memtable"
	"docstore/lsm/internal/table"

	"github.com/cockroachdb/errors"
)

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
