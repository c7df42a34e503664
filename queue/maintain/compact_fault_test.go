package maintain_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/require"
)

// deadQueue writes the same ids repeatedly, and deletes, in segments with dictionaries.
// It returns the live documents.
func deadQueue(t testing.TB, mem *vfs.Mem) (live map[string]string) {
	opts := queuetest.Options(mem)
	opts.Codec, opts.SegmentBytes, opts.DictionaryBytes = "s2", 6000, eraseDictionaryBytes
	w := queuetest.OpenWriter(t, opts)
	live = map[string]string{}
	for i := range 150 {
		it := queuetest.Item{ID: fmt.Sprint(i % 40), Document: queuetest.Posting(i), Deleted: i%13 == 12}
		it.Put(t, w)
		if live[it.ID] = it.Document; it.Deleted {
			delete(live, it.ID)
		}
		require.NoError(t, w.Flush())
	}
	require.NoError(t, w.Close())
	return live
}

func requireLive(t *testing.T, fsys vfs.FS, live map[string]string) {
	t.Helper()
	r, err := queue.OpenReader(queuetest.Dir, &queue.ReaderOptions{FS: fsys})
	require.NoError(t, err)
	defer r.Close()
	index := (&queuetest.Follower{Index: map[string]queuetest.Indexed{}}).Follow(t, r, -1)
	require.Len(t, index.Index, len(live))
	for id, want := range live {
		document, err := r.DocumentFor(nil, []byte(id), index.Index[id].Address)
		require.NoError(t, err)
		require.Equal(t, want, string(document))
	}
	queuetest.RequireSound(t, fsys)
}

// erasing compacts a deadQueue so that the next compaction has nothing to do.
func erasing(fsys vfs.FS, erases bool) (maintain.CompactReport, error) {
	return maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{
		FS: fsys, MaxDead: 0.1, DeleteOriginals: true, EraseDead: erases, DictionaryBytes: eraseDictionaryBytes,
		Now: func() time.Time { return queuetest.Start.Add(time.Hour) },
	})
}

// requireCompacted runs another compaction, checks that it completes the first, and
// returns the number of files.
func requireCompacted(t *testing.T, mem *vfs.Mem, live map[string]string, erases bool, when string) int {
	t.Helper()
	requireLive(t, mem, live)
	_, err := erasing(mem, erases)
	require.NoError(t, err, when)
	requireLive(t, mem, live)
	names, err := mem.List(queuetest.Dir)
	require.NoError(t, err)
	left := slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, segment.TemporarySuffix) })
	require.False(t, left, "%s: %v", when, names)
	return len(names)
}

// TestCompactFaults fails operations of a compaction, reads too: the compaction reports
// the error or does not need the operation, the queue is whole, and after the disk is
// healed the next compaction completes the work.
func TestCompactFaults(t *testing.T) {
	tally := crashtest.NewTally(t, "faults")
	for _, erases := range []bool{false, true} {
		base := queuetest.NewMem(t)
		live := deadQueue(t, base)
		whole := base.CrashClone(vfs.KeepAll)
		report, err := erasing(whole, erases)
		require.NoError(t, err)
		require.Greater(t, report.Deleted, 3)
		want, err := whole.List(queuetest.Dir)
		require.NoError(t, err)
		for i, failure := range crashtest.Failures() {
			if i > 0 && !crashtest.Soak() {
				break // similar to the first operations
			}
			reported := 0
			for k := int64(1); ; k += int64(crashtest.Share(4*stride(1), 1)) {
				mem := base.CrashClone(vfs.KeepAll)
				disk := failure.At(k, mem)
				_, err := erasing(disk, erases)
				disk.Heal()
				if disk.Failed() == 0 {
					require.NoError(t, err)
					break
				}
				tally.Case()
				when := fmt.Sprintf("%s at %d", failure.Name, k)
				if err != nil {
					require.ErrorIs(t, err, failure.Err, when)
					reported++
				} else {
					require.False(t, disk.FailedToWrite(), "%s was not reported", when)
				}
				files := requireCompacted(t, mem, live, erases, when)
				if disk.FailedToWrite() { // otherwise more may be left to the second one
					require.Equal(t, len(want), files, when)
				}
			}
			require.Positive(t, reported, failure.Name)
		}
	}
}

// TestCompactCrashesWhileItErases cuts the power before operations of compactions of a
// queue with dictionaries and deletes.
func TestCompactCrashesWhileItErases(t *testing.T) {
	random, tally := testseed.Rand(t), crashtest.NewTally(t, "crashes")
	for _, erases := range []bool{false, true} {
		mem := queuetest.NewMem(t)
		live := deadQueue(t, mem)
		sparing := crashtest.Share(3, 1) // the crash is before one in so many operations
		_, err := erasing(vfs.NewFault(mem, func(op vfs.Op) error {
			if !op.Kind.Writes() || random.IntN(sparing) != 0 {
				return nil
			}
			for _, way := range crashtest.Ways(random) {
				tally.Case()
				requireCompacted(t, mem.CrashClone(way.Keep), live, erases, fmt.Sprintf("before %v, %s", op, way.Name))
			}
			return nil
		}), erases)
		require.NoError(t, err)
		requireLive(t, mem, live)
	}
}
