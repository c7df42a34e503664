package docservice

import "docstore/queue"

// unsettled are rewrites of segments that have left out what a part of the queue
// supersedes which the index has not followed as yet. Documents in their place are
// asked of the segments alone: a cache could still have what was left out, because it
// was deleted and had to be erased.
//
// It is replaced as a whole, by the background pass, and asked by fetches without a
// lock; nil is the rule.
type unsettled []unsettledRun

type unsettledRun struct {
	first, last queue.SegmentID
}

// holds tells whether a document lies in the place of one of them.
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

// noteUnsettled finds out which rewrites are unsettled. What a rewrite's file says
// is remembered as long as it is there.
func (s *store) noteUnsettled(files []segmentFile) {
	position := s.tailState().position
	var found unsettled
	there := make(map[string]bool)
	for _, f := range files {
		if f.generation == 0 {
			continue
		}
		there[f.path] = true
		rewrite, ok := s.rewrites[f.path]
		if !ok || rewrite.version != f.version {
			settled, err := queue.Settled(s.options.FS, f.path, f.id)
			if err != nil {
				continue // it does not take the place of anything as yet
			}
			rewrite = knownRewrite{f.version, settled}
			s.rewrites[f.path] = rewrite
		}
		if rewrite.settled.Queue == position.Queue && position.Next.Compare(rewrite.settled.Next) < 0 {
			found = append(found, unsettledRun{f.id, f.last})
		}
	}
	for path := range s.rewrites {
		if !there[path] {
			delete(s.rewrites, path)
		}
	}
	if found == nil {
		s.unsettled.Store(nil)
		return
	}
	s.unsettled.Store(&found)
}

// knownRewrite is what the file of a rewrite says.
type knownRewrite struct {
	version fileVersion
	settled queue.Position
}
