package wal

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
)

// TestRandomCrashes appends and syncs at random and simulates a process crash and power
// cuts after each operation. A process crash keeps all records; a power cut keeps a
// prefix with at least the synced ones. Neither is reported as corruption, and a new
// log can continue with the records.
func TestRandomCrashes(t *testing.T) {
	random := testseed.Rand(t)
	tally := crashtest.NewTally(t, "crashes")
	for range crashtest.Share(20, 200) {
		fs := vfs.NewMem()
		require.NoError(t, fs.MkdirAll("d"))
		require.NoError(t, fs.SyncDir("."))
		w, err := Create("d/1.wal", 1, &Options{FS: fs, Capacity: 1 << 20})
		require.NoError(t, err)
		require.NoError(t, fs.SyncDir("d"))

		var appended []record
		synced := 0
		largest := []int{20, 300, 5_000, 100_000}[random.IntN(4)]
		for range 1 + random.IntN(40) {
			if random.IntN(4) == 0 {
				require.NoError(t, w.Sync())
				synced = len(appended)
			} else {
				r := makeRecord(uint64(len(appended)+1), random.IntN(largest))
				if err := w.Append(r.sequence, r.payload); errors.Is(err, ErrFull) {
					break
				}
				require.NoError(t, err)
				appended = append(appended, r)
			}

			got, result, err := replayAll(fs.ProcessCrashClone(), "d/1.wal")
			require.NoError(t, err)
			require.Equal(t, len(appended), len(got))
			requirePrefix(t, appended, got)
			require.False(t, result.Torn)

			for _, way := range crashtest.Ways(random) {
				tally.Case()
				clone := fs.CrashClone(way.Keep)
				got, result, err := replayAll(clone, "d/1.wal")
				require.NoError(t, err, way.Name)
				require.GreaterOrEqual(t, len(got), synced, way.Name)
				require.LessOrEqual(t, result.Synced, result.ValidBytes)
				requirePrefix(t, appended, got)
			}
		}
		clone := fs.CrashClone(vfs.KeepRandom(random.Uint64()))
		got, _, err := replayAll(clone, "d/1.wal")
		require.NoError(t, err)
		requireRecovery(t, clone, got)
		require.NoError(t, w.Close())
	}
}

// TestDamageAfterCrash: damage to synced records after a power cut is corruption if the
// mark of that Sync reached the disk.
func TestDamageAfterCrash(t *testing.T) {
	random := testseed.Rand(t)
	for range 200 {
		fs := vfs.NewMem()
		w, err := create("1.wal", fixtureHeader, Options{FS: fs, Capacity: 1 << 17})
		require.NoError(t, err)
		require.NoError(t, fs.SyncDir("."))
		var appended []record
		var synced int64
		for i := range 20 {
			r := makeRecord(uint64(i+1), random.IntN(5000))
			appended = append(appended, r)
			require.NoError(t, w.Append(r.sequence, r.payload))
			if i == 9 || i == 12 {
				synced = w.Size()
				require.NoError(t, w.Sync())
			}
		}
		clone := fs.CrashClone(vfs.KeepRandom(random.Uint64()))
		b, err := vfs.ReadFile(clone, "1.wal")
		require.NoError(t, err)
		_, before, err := replayBytes(t, b)
		require.NoError(t, err)
		require.LessOrEqual(t, before.Synced, synced)
		require.Positive(t, before.Synced, "the first mark was made durable by the second Sync")

		b[random.Int64N(before.Synced)] ^= 1 << random.IntN(8)
		got, _, err := replayBytes(t, b)
		require.ErrorIs(t, err, ErrCorrupt)
		requirePrefix(t, appended, got)
	}
}

// TestFaultAtEveryOperation injects each kind of failure at every operation, repairs
// the disk, continues in another log and cuts the power. A log returns its first
// failure from all later calls. All acknowledged records survive, and at most one
// record more.
func TestFaultAtEveryOperation(t *testing.T) {
	random := testseed.Rand(t)
	faults, crashes := crashtest.NewTally(t, "faults"), crashtest.NewTally(t, "crashes")
	for range crashtest.Share(1, 20) {
		largest := []int{20, 5_000, 70_000}[random.IntN(3)] // these in several pieces
		for _, failure := range crashtest.Failures() {
			for k := int64(1); ; k++ {
				l := faultyLog{mem: vfs.NewMem(), random: random, largest: largest, evicts: failure.Evicts}
				require.NoError(t, l.mem.MkdirAll("d"))
				require.NoError(t, l.mem.SyncDir("."))
				disk := failure.At(k, l.mem)
				err := l.write(t, disk, failure.Err)
				disk.Heal()
				if disk.Failed() == 0 {
					require.NoError(t, err)
					break
				}
				faults.Case()
				require.ErrorIs(t, err, failure.Err, "%s at %d", failure.Name, k)
				l.goOn(t, crashes)
			}
		}
	}
}

// faultyLog is a log on a disk that fails, and its successor.
type faultyLog struct {
	mem     *vfs.Mem
	random  *rand.Rand
	largest int  // of a payload, in bytes
	evicts  bool // the failing disk loses unsynced pages
	kept    []record
	synced  int      // number of synced records
	refused []record // the record whose Append failed, if any
}

// write writes and replays d/1.wal until an operation fails, and requires the log to
// return that failure from then on.
func (l *faultyLog) write(t *testing.T, disk vfs.FS, failure error) error {
	w, err := Create("d/1.wal", 1, &Options{FS: disk, Capacity: 1 << 20})
	if err != nil {
		return err
	}
	defer w.Close()
	for i := range 8 {
		r := makeRecord(uint64(i+1), 1+l.random.IntN(l.largest))
		if err = w.Append(r.sequence, r.payload); err == nil {
			l.kept = append(l.kept, r)
			if i%3 == 2 {
				if err = w.Sync(); err == nil {
					l.synced = len(l.kept)
				}
			}
		} else {
			l.refused = []record{r}
		}
		if err != nil {
			require.ErrorIs(t, w.Append(1000, nil), failure)
			require.ErrorIs(t, w.Sync(), failure)
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	_, _, err = replayAll(disk, "d/1.wal")
	return err
}

// goOn continues in another log on the repaired disk, with the surviving records and
// new ones, and cuts the power.
func (l *faultyLog) goOn(t *testing.T, crashes *crashtest.Tally) {
	there, _, err := replayAll(l.mem, "d/1.wal")
	least := len(l.kept)
	if l.evicts {
		least = l.synced
	}
	if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, ErrCorrupt) || least > 0 { // its header was not written
		require.NoError(t, err)
	}
	require.GreaterOrEqual(t, len(there), least)
	requirePrefix(t, append(slices.Clip(l.kept), l.refused...), there)

	w, err := Create("d/2.wal", 2, &Options{FS: l.mem, Capacity: 1 << 20})
	require.NoError(t, err)
	defer w.Close()
	require.NoError(t, l.mem.SyncDir("d"))
	synced := 0
	for i := range 4 {
		r := makeRecord(uint64(len(there)+1), l.random.IntN(l.largest))
		require.NoError(t, w.Append(r.sequence, r.payload))
		there = append(there, r)
		if i == 1 {
			require.NoError(t, w.Sync())
			synced = i + 1
		}
	}
	second := there[len(there)-4:]
	for _, way := range crashtest.Ways(l.random) {
		crashes.Case()
		got, _, err := replayAll(l.mem.CrashClone(way.Keep), "d/2.wal")
		require.NoError(t, err, way.Name)
		require.GreaterOrEqual(t, len(got), synced, way.Name)
		requirePrefix(t, second, got)
	}
}

// TestReplayReportsReadErrors: a failed read is an error, not the end of the log.
func TestReplayReportsReadErrors(t *testing.T) {
	f := newFixture(t, 400, 1000, 3)
	mem := vfs.NewMem()
	writeFile(t, mem, "1.wal", f.bytes)
	injected := errors.New("injected")
	for k := int64(1); ; k++ {
		hit := false
		fs := vfs.NewFault(mem, func(op vfs.Op) error {
			if op.N == k && op.Kind != vfs.OpClose {
				hit = true
				return injected
			}
			return nil
		})
		_, _, err := replayAll(fs, "1.wal")
		if !hit {
			require.NoError(t, err)
			require.Greater(t, k, int64(3))
			return
		}
		require.ErrorIs(t, err, injected, "operation %d", k)
	}
}

// TestRandomDamage overwrites any part of a log with random bytes. Replay returns a
// prefix or an error.
func TestRandomDamage(t *testing.T) {
	random := testseed.Rand(t)
	f := newFixture(t, 30, 200, 7, 19)
	for range 2000 {
		b := bytes.Clone(f.bytes)
		start := random.IntN(len(b))
		damage(random, b[start:min(len(b), start+1+random.IntN(3000))])
		got, result, err := replayBytes(t, b)
		requirePrefix(t, f.records, got)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
		}
		require.Equal(t, len(got), result.Records)
	}
}

func damage(random *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(random.Uint32())
	}
}

func TestCorruptionErrorNamesThePlace(t *testing.T) {
	err := error(&CorruptionError{Path: "d/7.wal", Offset: 4096, Reason: "record checksum 1, want 2"})
	require.EqualError(t, err, "wal: d/7.wal is corrupt at offset 4096: record checksum 1, want 2")
	require.ErrorIs(t, fmt.Errorf("open: %w", err), ErrCorrupt)
}
