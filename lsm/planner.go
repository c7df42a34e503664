package lsm

import (
	"math"
	"slices"
)

// MergeRule says when tables are merged. The two others are what the size-tiered rule
// is measured against: of n memtables it writes each about log n times and leaves
// about log n tables; merging always leaves one table and writes each n/2 times on
// average; merging never writes each once and leaves n.
type MergeRule uint8

// The rules.
const (
	SizeTiered MergeRule = iota
	MergeAlways
	MergeNever
)

// plan says which tables are due to be merged into one, as planMerge does.
func (r MergeRule) plan(units []uint64, limit uint64) (begin, end int) {
	switch r {
	case MergeAlways:
		if len(units) > 1 && sumUnits(units) < limit {
			return 0, len(units)
		}
		return 0, 0
	case MergeNever:
		return 0, 0
	}
	return planMerge(units, limit)
}

// The size-tiered rule, as in Indeed's docstore:
//
//	newIndex.add(memoryIndex)
//	while newIndex.size >= diskIndexes.first.size
//		newIndex.merge(diskIndexes.removeFirst())
//
// with sizes in memtables, rounded. In bytes, two tables that ought to be equal
// never are, and a sequence of slightly falling sizes would never be merged.

// tableUnits is the size of a table in memtables, rounded, at least 1.
func tableUnits(cost, memtableBytes uint64) uint64 {
	return max(1, (cost+memtableBytes/2)/memtableBytes)
}

// noLimit lets a merge be as large as the rule wants.
const noLimit = math.MaxUint64

// planMerge says which tables are due to be merged into one, given the sizes of
// all from the newest to the oldest: those from begin up to, not including, end.
// Nothing is due if both are 0.
//
// What is merged stays below limit. Beside a large merge only smaller ones are done:
// one as large would be merged again as soon as the large one is ready, and so
// written twice where the rule writes once (10 million entries were written up to
// 5.0 times instead of 3.7).
//
// It is the rule, stepped through from the oldest table to the newest, as if each
// had waited for the merges before it: so many flushes that waited for one merge leave
// the tables that the rule would have left, and not one of their sum, after which
// the next such sum would stay beside it (2, 3, 4, 5 and 6 instead of 4 and 16). Of
// the merges that it finds the one of the newest tables is done first. If nothing is
// due, sizes rise strictly from newest to oldest, which bounds the number of tables.
func planMerge(units []uint64, limit uint64) (begin, end int) {
	type run struct {
		begin, end int
		size       uint64
	}
	var room [64]run
	runs := room[:0] // oldest first
	for i := len(units) - 1; i >= 0; i-- {
		r := run{i, i + 1, units[i]}
		for len(runs) > 0 {
			older := runs[len(runs)-1]
			if r.size < older.size || r.size+older.size >= limit {
				break
			}
			r.end, r.size = older.end, r.size+older.size
			runs = runs[:len(runs)-1]
		}
		runs = append(runs, r)
	}
	for i := len(runs) - 1; i >= 0; i-- {
		if r := runs[i]; r.end-r.begin > 1 {
			return r.begin, r.end
		}
	}
	return 0, 0
}

func sumUnits(units []uint64) (all uint64) {
	for _, size := range units {
		all += size
	}
	return all
}

// excess is how many tables there are over those that the rule leaves once all
// merges are done that are due.
func (r MergeRule) excess(units []uint64) int {
	left := slices.Clone(units)
	for {
		begin, end := r.plan(left, noLimit)
		if begin == end {
			return len(units) - len(left)
		}
		left = slices.Replace(left, begin, end, sumUnits(left[begin:end]))
	}
}

// ruleCost counts what the size-tiered rule writes for the same flushes if each
// merge is done at once. As in the article, the flush that begins a merge is a part
// of it, and no key is overwritten.
type ruleCost struct {
	tables  []ruleTable // newest first
	written uint64      // bytes
}

type ruleTable struct{ units, bytes uint64 }

// flush counts a flush, of a table of the given size.
func (c *ruleCost) flush(units, bytes uint64) {
	c.tables = slices.Insert(c.tables, 0, ruleTable{units, bytes})
	c.written += bytes
	for first := true; ; first = false {
		sizes := make([]uint64, len(c.tables))
		for i, t := range c.tables {
			sizes[i] = t.units
		}
		begin, end := planMerge(sizes, noLimit)
		if begin == end {
			return
		}
		var merged ruleTable
		for _, t := range c.tables[begin:end] {
			merged.units += t.units
			merged.bytes += t.bytes
		}
		c.written += merged.bytes
		if begin == 0 && first {
			c.written -= bytes // came from memory
		}
		c.tables = slices.Replace(c.tables, begin, end, merged)
	}
}
