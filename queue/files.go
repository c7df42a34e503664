package queue

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"docstore/internal/vfs"
)

// Names of the files in a queue's directory.
const (
	sealedSuffix = ".seg"  // a sealed segment
	openSuffix   = ".open" // the segment being written
	newSuffix    = ".new"  // an open segment before its header is durable
	lockName     = "LOCK"
	nameDigits   = 10
)

// suffixes are tried in this order for a segment. Sealing renames the open file, maybe
// after the sealed one was found missing; so the sealed one is tried again.
var suffixes = []string{sealedSuffix, openSuffix, sealedSuffix}

func segmentPath(dir string, n SegmentID, suffix string) string {
	return filepath.Join(dir, fmt.Sprintf("%0*d%s", nameDigits, uint32(n), suffix))
}

// parseName parses the name of a segment's file.
func parseName(name string) (n SegmentID, suffix string, ok bool) {
	digits, suffix := name[:min(nameDigits, len(name))], name[min(nameDigits, len(name)):]
	if suffix != sealedSuffix && suffix != openSuffix && suffix != newSuffix {
		return 0, "", false
	}
	number, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || number == 0 || strings.HasPrefix(digits, "+") {
		return 0, "", false
	}
	return SegmentID(number), suffix, true
}

// FileName is the information in the name of a segment's or rewrite's file.
type FileName struct {
	First, Last SegmentID // equal for an original
	Generation  uint32    // of a rewrite; 0: an original
	Sealed      bool
}

// ParseFileName parses the base name of a segment's or rewrite's file. False: it is
// neither.
func ParseFileName(name string) (FileName, bool) {
	if r, ok := parseRewriteName(name); ok {
		return FileName{First: r.first, Last: r.last, Generation: r.generation, Sealed: true}, true
	}
	n, suffix, ok := parseName(name)
	return FileName{First: n, Last: n, Sealed: suffix == sealedSuffix}, ok && suffix != newSuffix
}

// parseIgnoredName parses the name of a quarantined file or of one that Repair has replaced.
func parseIgnoredName(name string) (FileName, bool) {
	for _, suffix := range []string{QuarantineSuffix, DamagedSuffix} {
		if before, ok := strings.CutSuffix(name, suffix); ok {
			return ParseFileName(before)
		}
	}
	return FileName{}, false
}

// listing lists the files of a queue's directory.
type listing struct {
	numbers    []SegmentID // ascending
	sealed     map[SegmentID]bool
	open       map[SegmentID]bool
	rewrites   []rewriteRun // from their names, in the order of their first segments
	reach      []SegmentID  // the highest segment of each rewrite and of those listed before it
	ignored    []string     // names of quarantined files and of files that Repair replaced
	unfinished []string     // names of files left over by a killed writer
}

func list(fsys vfs.FS, dir string) (listing, error) {
	l := listing{sealed: map[SegmentID]bool{}, open: map[SegmentID]bool{}}
	names, err := fsys.List(dir)
	if err != nil {
		return l, err
	}
	for _, name := range names {
		if run, ok := parseRewriteName(name); ok {
			l.rewrites = append(l.rewrites, run)
			continue
		}
		if _, ok := parseIgnoredName(name); ok {
			l.ignored = append(l.ignored, name)
			continue
		}
		n, suffix, ok := parseName(name)
		if !ok {
			continue
		}
		switch suffix {
		case sealedSuffix:
			l.sealed[n] = true
		case openSuffix:
			l.open[n] = true
		default:
			l.unfinished = append(l.unfinished, name)
			continue
		}
		l.numbers = append(l.numbers, n)
	}
	slices.Sort(l.numbers)
	l.numbers = slices.Compact(l.numbers)
	slices.SortFunc(l.rewrites, func(a, b rewriteRun) int { return cmp.Compare(a.first, b.first) })
	var reach SegmentID
	for _, r := range l.rewrites {
		reach = max(reach, r.last)
		l.reach = append(l.reach, reach)
	}
	return l, nil
}

// last returns the highest segment number, including replaced segments; 0: there is none.
func (l *listing) last() SegmentID {
	var last SegmentID
	if n := len(l.numbers); n > 0 {
		last = l.numbers[n-1]
	}
	for _, r := range l.rewrites {
		last = max(last, r.last)
	}
	return last
}

// after reports whether a segment with a number above n exists.
func (l *listing) after(n SegmentID) bool { return l.last() > n }

// places returns the numbers of the originals and the first numbers of the rewrites.
func (l *listing) places() []SegmentID {
	places := slices.Clone(l.numbers)
	for _, r := range l.rewrites {
		places = append(places, r.first)
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// rewritten reports whether a listed rewrite has segment n.
func (l *listing) rewritten(n SegmentID) bool { return len(l.covering(n)) > 0 }

// QuarantineSuffix ends the name of a segment's file that the server of a copy has
// quarantined because of damage, so that it is copied again. Such a file is not part of
// the queue, but its undamaged documents are served until the new copy arrives.
const QuarantineSuffix = ".bad"
