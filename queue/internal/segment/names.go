package segment

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
)

// Run identifies a rewrite: the segments that it replaces, and its generation. Of
// several rewrites of a segment the one with the highest generation is read.
type Run struct {
	First, Last ID
	Generation  uint32
}

func (r Run) valid() bool { return r.First > 0 && r.First <= r.Last && r.Generation > 0 }

// Covers reports whether segment n belongs to the run.
func (r Run) Covers(n ID) bool { return r.First <= n && n <= r.Last }

// Overlaps reports whether the runs share a segment.
func (r Run) Overlaps(other Run) bool {
	return r.First <= other.Last && other.First <= r.Last
}

const (
	generationDigits = 4 // the minimum in a file name
	// MaxGeneration is the maximum of the field of the header.
	MaxGeneration = math.MaxUint32
)

// NewRun identifies a rewrite that replaces the files of some segments, which have at most
// the generation highest.
func NewRun(first, last ID, highest uint32) (Run, error) {
	if highest == MaxGeneration {
		return Run{}, fmt.Errorf("segments %d to %d have the highest possible generation, %d, and cannot be rewritten", first, last, highest)
	}
	return Run{first, last, highest + 1}, nil
}

// Name returns the name of the rewrite's file.
func (r Run) Name() string {
	return fmt.Sprintf("%0*d-%0*d.%0*d%s", nameDigits, uint32(r.First), nameDigits, uint32(r.Last), generationDigits, r.Generation, SealedSuffix)
}

// Path returns the path of the rewrite's file.
func (r Run) Path(dir string) string { return filepath.Join(dir, r.Name()) }

// ParseRewriteName parses the result of Run.Name.
func ParseRewriteName(name string) (r Run, ok bool) {
	run, isSegment := strings.CutSuffix(name, SealedSuffix)
	numbers, generation, _ := strings.Cut(run, ".")
	first, last, isRun := strings.Cut(numbers, "-")
	if !isSegment || !isRun {
		return r, false
	}
	a, errA := strconv.ParseUint(first, 10, 32)
	b, errB := strconv.ParseUint(last, 10, 32)
	g, errG := strconv.ParseUint(generation, 10, 32)
	if errors.Join(errA, errB, errG) != nil {
		return r, false
	}
	r = Run{First: ID(a), Last: ID(b), Generation: uint32(g)}
	return r, r.valid() && r.Name() == name
}

// Names of the files in a queue's directory.
const (
	SealedSuffix = ".seg"  // a sealed segment
	OpenSuffix   = ".open" // the segment being written
	newSuffix    = ".new"  // an open segment before its header is durable
	nameDigits   = 10

	QuarantineSuffix = ".bad"     // follows the name of a quarantined file
	DamagedSuffix    = ".damaged" // follows the name of a file that a repair has replaced
)

// Suffixes are tried in this order for a segment. Sealing renames the open file, maybe
// after the sealed one was found missing; so the sealed one is tried again.
var Suffixes = []string{SealedSuffix, OpenSuffix, SealedSuffix}

// Path returns the path of a segment's file.
func Path(dir string, n ID, suffix string) string {
	return filepath.Join(dir, fmt.Sprintf("%0*d%s", nameDigits, uint32(n), suffix))
}

// ParseName parses the name of a segment's file.
func ParseName(name string) (n ID, suffix string, ok bool) {
	digits, suffix := name[:min(nameDigits, len(name))], name[min(nameDigits, len(name)):]
	if suffix != SealedSuffix && suffix != OpenSuffix && suffix != newSuffix {
		return 0, "", false
	}
	number, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || number == 0 || strings.HasPrefix(digits, "+") {
		return 0, "", false
	}
	return ID(number), suffix, true
}

// FileName is the information in the name of a segment's or rewrite's file.
type FileName struct {
	First, Last ID     // equal for an original
	Generation  uint32 // of a rewrite; 0: an original
	Sealed      bool
}

// ParseFileName parses the base name of a segment's or rewrite's file. False: it is
// neither.
func ParseFileName(name string) (FileName, bool) {
	if r, ok := ParseRewriteName(name); ok {
		return FileName{First: r.First, Last: r.Last, Generation: r.Generation, Sealed: true}, true
	}
	n, suffix, ok := ParseName(name)
	return FileName{First: n, Last: n, Sealed: suffix == SealedSuffix}, ok && suffix != newSuffix
}

// ParseIgnoredName parses the name of a quarantined file or of one that Repair has replaced.
func ParseIgnoredName(name string) (FileName, bool) {
	for _, suffix := range []string{QuarantineSuffix, DamagedSuffix} {
		if before, ok := strings.CutSuffix(name, suffix); ok {
			return ParseFileName(before)
		}
	}
	return FileName{}, false
}
