package publish

import "sort"

// Generation returns which queue of the collection a manifest belongs to: the first one is
// 1, and each replacement adds 1.
func (r Record) Generation(number uint64) int {
	return 1 + sort.Search(len(r.Generations), func(i int) bool { return r.Generations[i] > number })
}

// SameQueue reports whether two manifests list files of the same queue: names of files, and
// positions, mean the same in both.
func (r Record) SameQueue(a, b uint64) bool { return r.Generation(a) == r.Generation(b) }

// Continues reports whether a server of a manifest may read on to a later one, and serve the
// entries as it reads them. Otherwise it must open the later one separately: it is of
// another queue, or bad manifests lie between them. A server without a manifest (0) may
// read on to any.
func (r Record) Continues(served, target uint64) bool {
	if served == 0 {
		return true
	}
	if target <= served || !r.SameQueue(served, target) {
		return false
	}
	for _, b := range r.Bad {
		if b.From < target && b.To > served {
			return false
		}
	}
	return true
}
