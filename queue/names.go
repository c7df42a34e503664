package queue

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
)

// rewriteRun identifies a rewrite: the segments that it replaces, and its generation. Of
// several rewrites of a segment the one with the highest generation is read.
type rewriteRun struct {
	first, last SegmentID
	generation  uint32
}

func (r rewriteRun) valid() bool { return r.first > 0 && r.first <= r.last && r.generation > 0 }

// covers reports whether segment n belongs to the run.
func (r rewriteRun) covers(n SegmentID) bool { return r.first <= n && n <= r.last }

// overlaps reports whether the runs share a segment.
func (r rewriteRun) overlaps(other rewriteRun) bool {
	return r.first <= other.last && other.first <= r.last
}

const (
	generationDigits = 4              // the minimum in a file name
	maxGeneration    = math.MaxUint32 // of the field of the header
)

// newRun identifies a rewrite that replaces the files of some segments, which have at most
// the generation highest.
func newRun(first, last SegmentID, highest uint32) (rewriteRun, error) {
	if highest == maxGeneration {
		return rewriteRun{}, fmt.Errorf("segments %d to %d have the highest possible generation, %d, and cannot be rewritten", first, last, highest)
	}
	return rewriteRun{first, last, highest + 1}, nil
}

func (r rewriteRun) name() string {
	return fmt.Sprintf("%0*d-%0*d.%0*d%s", nameDigits, uint32(r.first), nameDigits, uint32(r.last), generationDigits, r.generation, sealedSuffix)
}

func (r rewriteRun) path(dir string) string { return filepath.Join(dir, r.name()) }

// parseRewriteName parses the result of name.
func parseRewriteName(name string) (r rewriteRun, ok bool) {
	run, isSegment := strings.CutSuffix(name, sealedSuffix)
	numbers, generation, _ := strings.Cut(run, ".")
	first, last, _ := strings.Cut(numbers, "-")
	a, errA := strconv.ParseUint(first, 10, 32)
	b, errB := strconv.ParseUint(last, 10, 32)
	g, errG := strconv.ParseUint(generation, 10, 32)
	if !isSegment || errors.Join(errA, errB, errG) != nil {
		return r, false
	}
	r = rewriteRun{first: SegmentID(a), last: SegmentID(b), generation: uint32(g)}
	return r, r.valid() && r.name() == name
}

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

// QuarantineSuffix ends the name of a segment's file that the server of a copy has
// quarantined because of damage, so that it is copied again. Such a file is not part of
// the queue, but its undamaged documents are served until the new copy arrives.
const QuarantineSuffix = ".bad"

// DamagedSuffix ends the name that Repair gives a file which a rewrite has replaced.
// Readers ignore such a file.
const DamagedSuffix = ".damaged"
