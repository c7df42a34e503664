package collection

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"docstore/queue"
)

// MaxFaults is the maximum number of faults in a Status.
const MaxFaults = 128

// maxSegmentFaults is the maximum number of faults kept for one segment. A damaged segment
// is replaced as a whole, so more are of no use.
const maxSegmentFaults = 16

// Fault is damage in a collection's files on this machine. It is removed once the file has
// been replaced by a sound copy.
type Fault struct {
	Segment queue.SegmentID // 0 if the fault is in no segment
	Offset  int64           // of the damage in Path, if known
	Path    string
	Reason  string
	Since   time.Time
	// StopsTail: the queue is not read beyond this fault. Other faults make only the
	// documents they concern unavailable.
	StopsTail bool
	// IndexUnwritten: the index cannot be written, for example because its disk is full. No
	// file is damaged.
	IndexUnwritten bool
	// content: bytes of the file are wrong, so another copy would repair it.
	content bool
	// notDurable: the bytes are right, but fsync of the file failed.
	notDurable bool
}

// String returns a one-line description for logs.
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

// same reports whether g is the same fault, found again.
func (f Fault) same(g Fault) bool {
	return f.Segment == g.Segment && f.Offset == g.Offset && f.Path == g.Path && f.Reason == g.Reason
}

// faultList holds the known faults: at most one that stops the tail, one of the index, and
// maxSegmentFaults of each segment. The caller provides locking.
type faultList struct {
	tail *Fault
	// index is the first damage found in the index, which is rebuilt because of it.
	index *Fault
	// lost says why the previous index was discarded; it is kept until the current one is
	// complete.
	lost     *Fault
	head     *Fault // reading the head file failed
	segments map[queue.SegmentID][]Fault
}

// setTail records why the tail has stopped. It reports whether the fault is new; a known
// fault keeps its Since.
func (l *faultList) setTail(f Fault) bool {
	f.StopsTail = true
	if l.tail != nil && l.tail.same(f) {
		return false
	}
	l.tail = &f
	return true
}

// clearTail removes the fault that stopped the tail, and reports whether there was one.
func (l *faultList) clearTail() bool {
	had := l.tail != nil
	l.tail = nil
	return had
}

// add records a fault that makes documents unavailable and reports whether it is new. It
// drops faults in excess of maxSegmentFaults.
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

// replace replaces the known faults of a file, and of its quarantined predecessor, with the
// result of a full check. It returns the faults that are new, and whether the file had
// faults and now has none.
func (l *faultList) replace(f segmentFile, found []Fault) (news []Fault, repaired bool) {
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
			l.add(known[i]) // keeps the time when it was first found
		} else if l.add(fault) {
			news = append(news, fault)
		}
	}
	return news, len(known) > 0 && len(found) == 0
}

// dropSuperseded removes the faults of files that are not among the files here, if a rewrite there
// supersedes them.
func (l *faultList) dropSuperseded(files []segmentFile) {
	for id, faults := range l.segments {
		faults = slices.DeleteFunc(slices.Clone(faults), func(fault Fault) bool {
			missing := !slices.ContainsFunc(files, func(f segmentFile) bool { return sameFiles(fault.Path, f) })
			file, ok := parseSegmentName(strings.TrimSuffix(filepath.Base(fault.Path), queue.QuarantineSuffix))
			return missing && ok && slices.ContainsFunc(files, func(f segmentFile) bool { return f.supersedes(file) })
		})
		if l.segments[id] = faults; len(faults) == 0 {
			delete(l.segments, id)
		}
	}
}

// has reports whether a fault of the file is known.
func (l *faultList) has(f segmentFile) bool {
	for id, faults := range l.segments {
		if id >= f.id && id <= f.last && slices.ContainsFunc(faults, func(fault Fault) bool { return sameFiles(fault.Path, f) }) {
			return true
		}
	}
	return false
}

// sameFiles reports whether path is the file, its earlier open version, or the quarantined
// copy of either.
func sameFiles(path string, f segmentFile) bool {
	other, ok := parseSegmentName(strings.TrimSuffix(filepath.Base(path), queue.QuarantineSuffix))
	return ok && other.segmentKey == f.segmentKey
}

// list returns at most MaxFaults faults, the one that stops the tail first and the others
// ordered by segment, and the number of those left out.
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
