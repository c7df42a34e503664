package collection

import "docstore/queue"

// unsettled lists rewrites of segments that have left out documents because of later
// entries of the queue that the index does not include yet. Documents at addresses in such
// a rewrite are read from the segments only: the cache may still hold one that was deleted
// and has to be erased.
//
// The background pass replaces the list as a whole; fetches read it without a lock. It is
// nil most of the time.
type unsettled []unsettledRun

type unsettledRun struct {
	first, last queue.SegmentID
}

// holds reports whether an address lies in one of the rewrites.
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

// findUnsettled determines which rewrites are unsettled. The contents of a rewrite's header
// are cached as long as the file exists.
func (v *verifier) findUnsettled(files []segmentFile) {
	position := v.health.tailState().position
	var found unsettled
	there := make(map[string]bool)
	for _, f := range files {
		if f.generation == 0 {
			continue
		}
		there[f.path] = true
		rewrite, ok := v.rewrites[f.path]
		if !ok || rewrite.version != f.version {
			settled, err := queue.Settled(v.options.FS, f.path, f.id)
			if err != nil {
				continue // it does not replace a segment yet
			}
			rewrite = knownRewrite{f.version, settled}
			v.rewrites[f.path] = rewrite
		}
		if rewrite.settled.Queue == position.Queue && position.Next.Compare(rewrite.settled.Next) < 0 {
			found = append(found, unsettledRun{f.id, f.last})
		}
	}
	for path := range v.rewrites {
		if !there[path] {
			delete(v.rewrites, path)
		}
	}
	if found == nil {
		v.reader.unsettled.Store(nil)
		return
	}
	v.reader.unsettled.Store(&found)
}

// knownRewrite is the cached header of a rewrite.
type knownRewrite struct {
	version fileVersion
	settled queue.Position
}
