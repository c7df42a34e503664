package lsm

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

// planMerge says which tables are due to be merged into one, given the sizes of
// all from the newest to the oldest: those from begin up to, not including, end.
// Nothing is due if both are 0.
//
// It is the rule, begun at the newest table; where that has nothing to take,
// as after flushes that did not wait for a merge, at the next older one. If
// nothing is due, sizes rise strictly from newest to oldest, which bounds the
// number of tables.
func planMerge(units []uint64) (begin, end int) {
	for begin := range units {
		size, end := units[begin], begin+1
		for end < len(units) && size >= units[end] {
			size += units[end]
			end++
		}
		if end-begin > 1 {
			return begin, end
		}
	}
	return 0, 0
}
