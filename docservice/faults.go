package docservice

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"docstore/queue"
)

// MaxFaults is how many faults a Status lists.
const MaxFaults = 128

// maxSegmentFaults is how many faults are kept of one segment: enough to see
// what is wrong, and a segment is replaced whole anyway.
const maxSegmentFaults = 16

// Fault is something that is wrong with a collection's files on this machine.
// It goes away by itself once the file has been replaced by a good copy.
type Fault struct {
	Segment queue.SegmentID // 0 if the fault is in no segment
	Offset  int64           // of the damage in Path, where it has one
	Path    string
	Reason  string
	Since   time.Time
	// StopsTail: the queue is not read beyond this fault. Other faults make
	// only the documents they concern unavailable.
	StopsTail bool
	// content: bytes of the file are wrong, so that another copy would help.
	content bool
	// notDurable: they are right, and the disk did not take them.
	notDurable bool
}

// String is one line for logs and people.
func (f Fault) String() string {
	effect := "some documents are unavailable"
	if f.StopsTail {
		effect = "the queue is not read beyond it"
	}
	switch {
	case f.Path == "":
		return fmt.Sprintf("%s (%s)", f.Reason, effect)
	case f.Segment == 0:
		return fmt.Sprintf("%s, offset %d: %s (%s)", f.Path, f.Offset, f.Reason, effect)
	}
	return fmt.Sprintf("%s: segment %d, offset %d: %s (%s)", f.Path, f.Segment, f.Offset, f.Reason, effect)
}

// same reports whether two faults are one, found twice.
func (f Fault) same(g Fault) bool {
	return f.Segment == g.Segment && f.Offset == g.Offset && f.Path == g.Path && f.Reason == g.Reason
}

// faultList keeps what is wrong: at most one fault that stops the tail, one of
// the index, and some of each segment. Its owner locks.
type faultList struct {
	tail *Fault
	// index is the first damage found in the index, which is rebuilt because of it.
	index *Fault
	// lost says why the index before this one was set aside, until this one has been
	// built.
	lost     *Fault
	head     *Fault // the head file cannot be read
	segments map[queue.SegmentID][]Fault
}

// setTail records why the tail has stopped. It reports whether that is news:
// a fault found again keeps its Since.
func (l *faultList) setTail(f Fault) bool {
	f.StopsTail = true
	if l.tail != nil && l.tail.same(f) {
		return false
	}
	l.tail = &f
	return true
}

// clearTail forgets why the tail had stopped, and reports whether it had.
func (l *faultList) clearTail() bool {
	had := l.tail != nil
	l.tail = nil
	return had
}

// add records a fault that makes documents unavailable and reports whether it
// is news. One more than maxSegmentFaults of a segment is not kept, and no news.
func (l *faultList) add(f Fault) bool {
	if f.Segment == 0 {
		if l.index != nil {
			return false
		}
		l.index = &f
		return true
	}
	known := l.segments[f.Segment]
	if len(known) == maxSegmentFaults || slices.ContainsFunc(known, f.same) {
		return false
	}
	if l.segments == nil {
		l.segments = make(map[queue.SegmentID][]Fault)
	}
	l.segments[f.Segment] = append(known, f)
	return true
}

// replace puts what a full check of a file has found in the place of what was
// known of it, and of what was set aside under its name. It returns what of that
// is news, and whether the file had faults and now has none.
func (l *faultList) replace(f segmentFile, found []Fault) (news []Fault, mended bool) {
	var known []Fault
	for id, faults := range l.segments {
		if id < f.id || id > f.last {
			continue
		}
		others := faults[:0:0]
		for _, fault := range faults {
			if sameFiles(fault.Path, f) {
				known = append(known, fault)
			} else {
				others = append(others, fault)
			}
		}
		if l.segments[id] = others; len(others) == 0 {
			delete(l.segments, id)
		}
	}
	for _, fault := range found {
		if i := slices.IndexFunc(known, fault.same); i >= 0 {
			l.add(known[i]) // with the time when it was first found
		} else if l.add(fault) {
			news = append(news, fault)
		}
	}
	return news, len(known) > 0 && len(found) == 0
}

// has tells whether any fault of a file is known.
func (l *faultList) has(f segmentFile) bool {
	for id, faults := range l.segments {
		if id >= f.id && id <= f.last && slices.ContainsFunc(faults, func(fault Fault) bool { return sameFiles(fault.Path, f) }) {
			return true
		}
	}
	return false
}

// sameFiles tells whether a path is that of a file, of the open one that it was
// before, or of either where it was set aside.
func sameFiles(path string, f segmentFile) bool {
	other, ok := parseSegmentName(strings.TrimSuffix(filepath.Base(path), queue.AsideSuffix))
	return ok && other.segmentKey == f.segmentKey
}

// list returns the faults, the one that stops the tail first and then by
// segment, as far as MaxFaults goes, and how many more there are.
func (l *faultList) list() (faults []Fault, more int) {
	if l.tail != nil {
		faults = append(faults, *l.tail)
	}
	for _, f := range []*Fault{l.index, l.lost, l.head} {
		if f != nil {
			faults = append(faults, *f)
		}
	}
	ids := make([]queue.SegmentID, 0, len(l.segments))
	for id := range l.segments {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		faults = append(faults, l.segments[id]...)
	}
	if len(faults) > MaxFaults {
		more = len(faults) - MaxFaults
		faults = faults[:MaxFaults:MaxFaults]
	}
	return faults, more
}
