package collection

import (
	"cmp"
	"slices"

	"docstore/queue"
)

// unsettled are segments for which the index may have entries without a document: a rewrite
// has left the document out because of later entries that the index does not include. For
// an address in them an entry of the index, or a value of the cache, proves nothing, and every
// answer asks the segments. The runs are in order and do not touch. The nil slice and
// pointer are empty.
type unsettled []segmentRun

// segmentRun is a sequence of segments.
type segmentRun struct {
	first, last queue.SegmentID
}

// holds reports whether an address lies in one of the segments.
func (u *unsettled) holds(at queue.Address) bool {
	if u == nil {
		return false
	}
	for _, run := range *u {
		if run.first <= at.Segment && at.Segment <= run.last {
			return true
		}
	}
	return false
}

// with returns the union of u and runs.
func (u unsettled) with(runs ...segmentRun) unsettled {
	all := slices.Concat(u, runs)
	slices.SortFunc(all, func(a, b segmentRun) int { return cmp.Compare(a.first, b.first) })
	var union unsettled
	for _, run := range all {
		if n := len(union) - 1; n >= 0 && run.first <= union[n].last+1 {
			union[n].last = max(union[n].last, run.last)
			continue
		}
		union = append(union, run)
	}
	return union
}
