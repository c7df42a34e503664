package lsm

import (
	"sync/atomic"
	"time"

	"docstore/bloom"
)

// Stats is what a store holds and what it has done since it was opened.
type Stats struct {
	Tables []TableStats    // newest first
	Merges []MergeProgress // under way: a large one, and those it pauses for

	MemtableBytes    int64 // memory of memtables, those waiting to be written included
	MemtablesWaiting int   // full, not yet written
	LogBytes         int64 // of the logs whose writes are not in tables

	Filter bloom.ManagerStats

	Writes  WriteStats
	Pinned  int64 // bytes of Options.Budget for memtables held by snapshots and iterators of all its stores
	Problem error // why the last flush or merge failed or no writes are taken; nil if all is well
}

// TableStats is about one table.
type TableStats struct {
	Number     uint64
	Entries    uint64 // tombstones included
	Tombstones uint64
	Bytes      uint64 // of the file
	Units      uint64 // size in memtables, rounded, as the size-tiered rule sees it
	// Filter counts pages, and look-ups that asked the filter: Filter.No of
	// them it spared the table.
	Filter bloom.FilterStats
}

// MergeProgress is a merge under way. What it writes is not more than what it reads,
// and less where keys were overwritten.
type MergeProgress struct {
	Tables       []uint64 // their numbers, newest first
	InputBytes   uint64   // of keys and values in them
	WrittenBytes uint64   // of keys and values so far
	Begun        time.Time
}

// TableFilter is the filter of a table, page by page.
type TableFilter struct {
	Table uint64            // its number
	Pages []bloom.PageStats // in the order of their keys
}

// FilterPages tells which pages of the filters are in memory, and what they are
// good for; newest table first. It waits while pages are loaded, and costs some
// 50 ns a page: a page is 4 KiB of filter, some 4,000 entries.
func (db *DB) FilterPages() []TableFilter {
	v, err := db.acquire()
	if err != nil {
		return nil
	}
	defer v.unref()
	var filters []TableFilter
	for _, t := range v.tables {
		if t.filter != nil {
			filters = append(filters, TableFilter{t.facts.number, db.filters.Pages(nil, t.filter)})
		}
	}
	return filters
}

// WriteStats counts work since Open.
type WriteStats struct {
	Writes       uint64 // Sets and Deletes
	WrittenBytes uint64 // of them, as encoded in batches
	LogBytes     uint64
	Syncs        uint64 // group commits
	SyncTime     time.Duration
	Flushes      uint64
	FlushBytes   uint64 // of tables, as far as they came from memory
	RuleBytes    uint64 // of the tables that the size-tiered rule alone would have written
	Merges       uint64 // flushes that merged included
	MergeBytes   uint64 // of tables, as far as they came from other tables
	Failures     uint64 // flushes and merges that failed
	// Writers are slowed down by short delays before they fill a memtable while the
	// one before it is not yet a table, or while many merges are due, and stop where
	// that was not enough.
	Delays, Stalls       uint64
	DelayTime, StallTime time.Duration
}

// Amplification is the bytes written to tables for each byte that was flushed
// to one: the measure that the size-tiered rule is about. The log comes on top.
func (w WriteStats) Amplification() float64 {
	if w.FlushBytes == 0 {
		return 0
	}
	return float64(w.FlushBytes+w.MergeBytes) / float64(w.FlushBytes)
}

// RuleAmplification is what Amplification would be if each merge were done as soon as
// the size-tiered rule wants it, on an empty store without overwrites, and with the
// flush that begins a merge counted as part of it, as in the article on docstore. The
// store writes such a flush to a table of its own if the merge is a large one, which
// must not hold up writers.
func (w WriteStats) RuleAmplification() float64 {
	if w.FlushBytes == 0 {
		return 0
	}
	return float64(w.RuleBytes) / float64(w.FlushBytes)
}

// counters are those that Stats reads.
type counters struct {
	syncs, syncNanos    atomic.Uint64
	flushes, flushBytes atomic.Uint64
	merges, mergeBytes  atomic.Uint64
	failures            atomic.Uint64
	delays, delayNanos  atomic.Uint64
	stalls, stallNanos  atomic.Uint64
}

// Stats tells what the store holds and does. A closed one holds nothing.
func (db *DB) Stats() Stats {
	c := &db.counters
	s := Stats{
		Writes: WriteStats{
			Syncs: c.syncs.Load(), SyncTime: time.Duration(c.syncNanos.Load()),
			Flushes: c.flushes.Load(), FlushBytes: c.flushBytes.Load(),
			Merges: c.merges.Load(), MergeBytes: c.mergeBytes.Load(),
			Failures: c.failures.Load(),
			Delays:   c.delays.Load(), DelayTime: time.Duration(c.delayNanos.Load()),
			Stalls: c.stalls.Load(), StallTime: time.Duration(c.stallNanos.Load()),
		},
		Filter: db.filters.Stats(),
		Pinned: db.options.Budget.pinnedBytes(),
	}
	db.mu.Lock()
	s.Writes.RuleBytes = db.mu.rule.written
	s.Writes.Writes, s.Writes.WrittenBytes, s.Writes.LogBytes = db.mu.writes, db.mu.writtenBytes, db.mu.logBytes
	db.mu.Unlock()
	v, err := db.acquire()
	if err != nil {
		return s
	}
	defer v.unref()
	for _, m := range v.memtables {
		s.MemtableBytes += m.bytes.Load()
	}
	s.MemtablesWaiting = max(0, len(v.memtables)-1)
	units := db.units(v.tables)
	for i, t := range v.tables {
		stats := TableStats{
			Number: t.facts.number, Entries: t.facts.entries, Tombstones: t.facts.tombstones,
			Bytes: t.facts.fileBytes, Units: units[i],
		}
		if t.filter != nil {
			stats.Filter = t.filter.Stats()
		}
		s.Tables = append(s.Tables, stats)
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, p := range db.mu.merges {
		progress := MergeProgress{InputBytes: p.bytes, WrittenBytes: p.done.Load(), Begun: p.begun}
		for _, t := range p.inputs {
			progress.Tables = append(progress.Tables, t.facts.number)
		}
		s.Merges = append(s.Merges, progress)
	}
	for _, log := range db.mu.logs {
		s.LogBytes += log.bytes
		if log.writer != nil {
			s.LogBytes += log.writer.Size()
		}
	}
	for _, err := range []error{db.mu.logError, db.mu.flushError, db.mu.mergeError} {
		if s.Problem == nil {
			s.Problem = err
		}
	}
	return s
}
