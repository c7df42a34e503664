package lsm

import (
	"math"
	"slices"
)

// MergeRule determines when tables are merged. MergeAlways and MergeNever are for
// comparison: of n memtables SizeTiered writes each about log n times and leaves about
// log n tables; MergeAlways writes each n/2 times on average and leaves one table;
// MergeNever writes each once and leaves n tables.
type MergeRule uint8

// Merge rules.
const (
	SizeTiered MergeRule = iota
	MergeAlways
	MergeNever
)

// plan returns the tables to be merged, as planMerge does.
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

// tableUnits returns the size of a table in memtables, rounded, at least 1.
func tableUnits(cost, memtableBytes uint64) uint64 {
	return max(1, (cost+memtableBytes/2)/memtableBytes)
}

// noLimit permits merges of any size.
const noLimit = math.MaxUint64

// planMerge returns the tables to be merged next, given the sizes of all tables from
// newest to oldest: those from begin up to but excluding end. If nothing is due, both
// are 0.
//
// The sum of the inputs is below limit. During a large merge only smaller ones are
// done: an equally large one would be merged again as soon as the large one is done,
// and so be written twice instead of once (10 million entries were written up to 5.0
// times instead of 3.7).
//
// planMerge applies the rule from the oldest table to the newest, as if each had waited
// for the merges before it. So flushes that accumulate during a merge leave the same
// tables as without it, and not one table of their total size, which would prevent
// later merges (tables of 2, 3, 4, 5 and 6 instead of 4 and 16). Of the merges found,
// the one of the newest tables is done first. If nothing is due, sizes increase
// strictly from newest to oldest, which bounds the number of tables.
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

// excess returns the number of tables above those that the rule leaves after all due
// merges.
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
