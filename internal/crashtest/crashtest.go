// Package crashtest has the common parts of the storage packages' crash and fault tests:
// the ways in which a disk loses unsynced data, and a count of the cases.
//
//	disk := vfs.NewMem()
//	fs := vfs.NewFault(disk, func(op vfs.Op) error {        // before each operation
//		for _, way := range crashtest.Ways(random) {
//			tally.Case()
//			verify(disk.CrashClone(way.Keep), way)  // the state that the next process finds
//		}
//		return nil                                      // the workload continues
//	})
//
// So one run of a workload tests a crash before each of its operations, in each way, with
// background work in whatever state it is in.
package crashtest

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"docstore/internal/race"
	"docstore/internal/vfs"
)

// Way is a state of a disk after a crash.
type Way struct {
	Name string
	Keep vfs.Keep
	// ProcessOnly: only the process has died, and nothing is lost. A later power loss may
	// still lose unsynced data.
	ProcessOnly bool
}

// Ways returns the five ways. The random ones differ in each call.
func Ways(random *rand.Rand) []Way {
	return []Way{
		{Name: "only what was synced", Keep: vfs.KeepSynced},
		{Name: "the process alone", Keep: vfs.KeepAll, ProcessOnly: true},
		{Name: "some pages and names", Keep: vfs.KeepRandom(random.Uint64())},
		{Name: "the last write torn", Keep: vfs.KeepTorn(random.Uint64())},
		{Name: "names reordered", Keep: vfs.KeepReordered(random.Uint64())},
	}
}

// Tally counts the cases of a test and logs the count at the end. make soak adds up the
// counts of all tests.
type Tally struct{ cases atomic.Int64 }

// NewTally returns a Tally of cases of a kind: "crashes" or "faults".
func NewTally(t testing.TB, kind string) *Tally {
	tally := &Tally{}
	t.Cleanup(func() { t.Logf("crashtest: %d %s", tally.cases.Load(), kind) })
	return tally
}

// Case counts one case.
func (t *Tally) Case() { t.cases.Add(1) }

// SoakVariable is the environment variable with which make soak makes tests run all cases
// instead of a share.
const SoakVariable = "DOCSTORE_SOAK"

// Soak reports whether tests run all cases.
func Soak() bool { return os.Getenv(SoakVariable) != "" }

// shortShare is the part of the cases that -short leaves, and the race detector: both leave a ninth.
const shortShare = 3

// Share returns n, all in a soak, and what leaves fewer cases with -short and under the race
// detector, which makes each case several times slower and learns little from many alike: make
// test-all runs the tests without it, too. n is a number of cases if it is less than all, otherwise
// the distance between two of them.
func Share(n, all int) int {
	part := 1
	if testing.Short() {
		part *= shortShare
	}
	if race.Enabled {
		part *= shortShare
	}
	switch {
	case Soak():
		return all
	case n < all:
		return max(1, n/part)
	case n > all:
		return n * part
	}
	return n
}

// Variables of the environment with which scripts/soak makes a test run for a given time.
const (
	// DurationVariable has the duration of the whole run, such as 24h.
	DurationVariable = "DOCSTORE_SOAK_DURATION"
	// DirVariable is the directory of the run. A run in the directory of an earlier one that
	// was interrupted continues it.
	DirVariable = "DOCSTORE_SOAK_DIR"
)

// Duration returns how long a test is to run, and its directory, which exists. It returns 0
// if DurationVariable is not set.
func Duration(t testing.TB) (duration time.Duration, dir string) {
	t.Helper()
	value := os.Getenv(DurationVariable)
	if value == "" {
		return 0, ""
	}
	duration, err := time.ParseDuration(value)
	if err != nil || duration <= 0 {
		t.Fatalf("%s=%q: want a duration such as 24h", DurationVariable, value)
	}
	dir, err = filepath.Abs(os.Getenv(DirVariable))
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil || os.Getenv(DirVariable) == "" {
		t.Fatalf("%s=%q: want a directory: %v", DirVariable, os.Getenv(DirVariable), err)
	}
	return duration, dir
}
