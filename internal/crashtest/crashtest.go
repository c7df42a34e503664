// Package crashtest is what the crash and fault tests of the storage rooms have in
// common: the ways in which a disk loses what was not synced, and the count of cases,
// so that it can be said how many there were.
//
//	disk := vfs.NewMem()
//	fs := vfs.NewFault(disk, func(op vfs.Op) error {        // before each operation
//		for _, way := range crashtest.Ways(random) {
//			tally.Case()
//			verify(disk.CrashClone(way.Keep), way)  // what the next process would find
//		}
//		return nil                                      // and the workload continues
//	})
//
// So one run of a workload is a crash before each of its operations, in each way, with
// the background as far as it happened to be.
package crashtest

import (
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"

	"docstore/internal/vfs"
)

// Way is one in which a disk is left after a crash.
type Way struct {
	Name string
	Keep vfs.Keep
	// ProcessOnly: nothing is lost, as after the death of the process alone. What was
	// not synced may still be, if the power goes then.
	ProcessOnly bool
}

// Ways returns the five ways, those that are random again each time.
func Ways(random *rand.Rand) []Way {
	return []Way{
		{Name: "only what was synced", Keep: vfs.KeepSynced},
		{Name: "the process alone", Keep: vfs.KeepAll, ProcessOnly: true},
		{Name: "some pages and names", Keep: vfs.KeepRandom(random.Uint64())},
		{Name: "the last write torn", Keep: vfs.KeepTorn(random.Uint64())},
		{Name: "names reordered", Keep: vfs.KeepReordered(random.Uint64())},
	}
}

// Tally counts the cases of a test and tells them at its end, where make soak adds up
// what all tests tell.
type Tally struct{ cases atomic.Int64 }

// NewTally makes a Tally of cases of a kind: "crashes" or "faults".
func NewTally(t testing.TB, kind string) *Tally {
	tally := &Tally{}
	t.Cleanup(func() { t.Logf("crashtest: %d %s", tally.cases.Load(), kind) })
	return tally
}

// Case counts one.
func (t *Tally) Case() { t.cases.Add(1) }

// SoakVariable is the environment variable with which make soak asks tests for all of
// what they otherwise do a share of.
const SoakVariable = "DOCSTORE_SOAK"

// Soak reports whether all of it is wanted.
func Soak() bool { return os.Getenv(SoakVariable) != "" }

// Share is n, or in a soak all.
func Share(n, all int) int {
	if Soak() {
		return all
	}
	return n
}
