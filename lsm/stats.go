package lsm

import (
	"time"

	"docstore/bloom"
	"docstore/internal/residency"
)

// Stats describes a store and its activity since it was opened.
type Stats struct {
	Tables []TableStats    // newest first
	Merges []MergeProgress // in progress: a large merge and the merges for which it pauses

	MemtableBytes    int64 // memory of memtables, including waiting ones
	MemtablesWaiting int   // full, not yet flushed
	LogBytes         int64 // of logs with writes that are not in tables

	Filter bloom.ManagerStats

	Writes  WriteStats
	Pinned  int64 // bytes of Options.Budget for memtables pinned by snapshots and iterators of all its stores
	Problem error // why the last flush, merge or write failed or writes are stopped; nil if healthy
}

// TableStats describes a table.
type TableStats struct {
	Number     uint64
	Entries    uint64 // including tombstones
	Tombstones uint64
	Bytes      uint64 // of the file
	Units      uint64 // size in memtables, rounded, as the size-tiered rule sees it
	// Filter describes the filter's pages and lookups; Filter.No is the number of
	// lookups in the table that it saved.
	Filter bloom.FilterStats
}

// TableFilter describes the filter of a table.
type TableFilter struct {
	Table uint64            // its number
	Pages []bloom.PageStats // in the order of their keys
}

// FilterPages describes the pages of all filters, newest table first. It waits while
// pages are loaded and takes about 50 ns per page; a page is 4 KiB, about 4,000
// entries.
func (db *DB) FilterPages() []TableFilter {
	v, err := db.acquire()
	if err != nil {
		return nil
	}
	defer v.unref()
	var filters []TableFilter
	for _, t := range v.tables {
		if t.Filter != nil {
			filters = append(filters, TableFilter{t.Facts.Number, db.filters.Pages(nil, t.Filter)})
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
	FlushBytes   uint64 // of tables, from memtables
	Merges       uint64 // including flushes that merged
	MergeBytes   uint64 // of tables, from other tables
	Failures     uint64 // failed flushes and merges
	// Writers are delayed while they fill a memtable before the previous one is
	// flushed, or while many merges are due. They stall when that was not sufficient.
	Delays, Stalls       uint64
	DelayTime, StallTime time.Duration
}

// Amplification returns the bytes written to tables per flushed byte, without logs.
func (w WriteStats) Amplification() float64 {
	if w.FlushBytes == 0 {
		return 0
	}
	return float64(w.FlushBytes+w.MergeBytes) / float64(w.FlushBytes)
}

// Stats returns the current statistics. A closed store has none.
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
	s.Writes.Writes, s.Writes.WrittenBytes = db.commit.written()
	if db.options.Durability != None {
		s.Writes.LogBytes = s.Writes.WrittenBytes
	}
	v, err := db.acquire()
	if err != nil {
		return s
	}
	defer v.unref()
	for _, m := range v.memtables {
		s.MemtableBytes += m.Bytes()
	}
	s.LogBytes = db.writer.logs.bytes()
	s.MemtablesWaiting = max(0, len(v.memtables)-1)
	units := db.schedule.units(v.tables)
	for i, t := range v.tables {
		stats := TableStats{
			Number: t.Facts.Number, Entries: t.Facts.Entries, Tombstones: t.Facts.Tombstones,
			Bytes: t.Facts.FileBytes, Units: units[i],
		}
		if t.Filter != nil {
			stats.Filter = t.Filter.Stats()
		}
		s.Tables = append(s.Tables, stats)
	}
	merges, flushErr, mergeErr := db.schedule.progress()
	s.Merges = merges
	_, _, logFailure := db.writer.logs.list()
	for _, err := range []error{logFailure, flushErr, mergeErr, db.commit.refusal()} {
		if s.Problem == nil {
			s.Problem = err
		}
	}
	return s
}

// Resident returns the share of the tables that is in memory, from a sample, and the bytes
// of the tables, 0 if the system does not tell the share.
func (db *DB) Resident() (share float64, mapped int64) {
	v, err := db.acquire()
	if err != nil {
		return 0, 0
	}
	defer v.unref()
	mappings := make([][]byte, len(v.tables))
	for i, t := range v.tables {
		mappings[i] = t.Mapped()
	}
	return residency.Share(mappings)
}
