package maintain_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/require"
)

// truncateQueue writes segments of 6 entries in blocks of 2, each entry with a cursor.
// The last segment stays open if open is true.
func truncateQueue(t *testing.T, segments int, open bool) (*vfs.Mem, []queuetest.Item) {
	mem := queuetest.NewMem(t)
	opts := queuetest.Options(mem)
	opts.BlockBytes = 300
	w := queuetest.OpenWriter(t, opts)
	for n := range 6 * segments {
		_, err := w.Put(queue.Record{ID: fmt.Append(nil, "id-", n), Document: []byte(queuetest.Posting(n)[:120]), Cursor: fmt.Append(nil, "cursor-", n)})
		require.NoError(t, err)
		switch {
		case n%6 == 5 && (!open || n/6 < segments-1):
			require.NoError(t, w.Seal())
		case n%6 == 3:
			require.NoError(t, w.Flush())
		}
	}
	require.NoError(t, w.Flush())
	items := queuetest.Scan(t, queuetest.OpenReader(t, mem), queue.Position{})
	require.Len(t, items, 6*segments)
	for i := range items {
		items[i].Document = queuetest.Posting(i)[:120]
	}
	if !open {
		require.NoError(t, w.Close())
	}
	return durableCopy(t, mem), items
}

// durableCopy returns a copy of a queue's source that loses nothing in a crash.
func durableCopy(t *testing.T, mem *vfs.Mem) *vfs.Mem {
	names, err := mem.List(queuetest.Dir)
	require.NoError(t, err)
	files := map[string][]byte{}
	for _, name := range names {
		if name != segment.LockName {
			files[name], err = vfs.ReadFile(mem, queuetest.Dir+"/"+name)
			require.NoError(t, err)
		}
	}
	return queuetest.SourceWith(t, files)
}

func truncateAt(t *testing.T, fsys vfs.FS, from queue.Address) maintain.TruncateReport {
	t.Helper()
	dry, err := maintain.Truncate(context.Background(), queuetest.Dir, from, &maintain.TruncateOptions{FS: fsys, DryRun: true})
	require.NoError(t, err)
	report, err := maintain.Truncate(context.Background(), queuetest.Dir, from, &maintain.TruncateOptions{FS: fsys})
	require.NoError(t, err)
	dry.End = report.End
	require.Equal(t, dry, report)
	return report
}

// TestTruncateAtEveryEntry truncates at each entry. Readers continue, or get an error if
// they have read truncated entries; later addresses are new; the cursor is that of the
// last whole block.
func TestTruncateAtEveryEntry(t *testing.T) {
	for _, open := range []bool{false, true} {
		source, items := truncateQueue(t, 3, open)
		for keep := 0; keep <= len(items); keep++ {
			mem := source.CrashClone(vfs.KeepAll)
			from := queue.Address{Segment: 1}
			if keep > 0 {
				from = items[keep-1].Next.Next
			}
			if keep%6 == 0 && keep > 0 { // the previous segment as a whole
				from = queue.Address{Segment: queue.SegmentID(keep/6) + 1}
			}
			report := truncateAt(t, mem, from)
			require.EqualValues(t, len(items)-keep, report.Entries)
			require.Empty(t, report.Missing)
			requireTruncated(t, mem, items, keep, 3)
		}
	}
}

// TestTruncateAgain truncates within a segment that an earlier truncation has rewritten, at each
// entry: the cursor is that of the last whole block, so append repeats no record.
func TestTruncateAgain(t *testing.T) {
	source, items := truncateQueue(t, 2, false)
	for first := 7; first <= 11; first++ {
		once := source.CrashClone(vfs.KeepAll)
		truncateAt(t, once, items[first].At)
		for keep := 6; keep <= first; keep++ {
			mem := once.CrashClone(vfs.KeepAll)
			report := truncateAt(t, mem, items[keep].At)
			require.EqualValues(t, first-keep, report.Entries)
			requireTruncated(t, mem, items[:first], keep, 2)
		}
	}
}

// TestTruncateCompactedCursor truncates within a segment that was compacted: the cursor is that of
// the last whole block before the address, or the last one of the segment if all of it is kept.
func TestTruncateCompactedCursor(t *testing.T) {
	mem := queuetest.NewMem(t)
	opts := queuetest.Options(mem)
	opts.BlockBytes = 300
	w := queuetest.OpenWriter(t, opts)
	put := func(id string, n int) {
		_, err := w.Put(queue.Record{ID: []byte(id), Document: []byte(queuetest.Posting(n)[:120]), Cursor: fmt.Append(nil, "cursor-", n)})
		require.NoError(t, err)
	}
	// Blocks of two entries: half of the second one, and all of the fourth one are superseded.
	for n, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		put(id, n)
	}
	require.NoError(t, w.Seal())
	for n, id := range []string{"d", "g", "h"} {
		put(id, 8+n)
	}
	require.NoError(t, w.Seal())
	require.NoError(t, w.Close())
	items := queuetest.Scan(t, queuetest.OpenReader(t, mem), queue.Position{})
	_, err := maintain.Compact(t.Context(), queuetest.Dir, &maintain.CompactOptions{FS: mem, MaxDead: 0.01, DeleteOriginals: true})
	require.NoError(t, err)
	for keep, want := range map[int]string{1: "", 2: "cursor-1", 3: "cursor-1", 4: "cursor-3", 5: "cursor-3", 6: "cursor-5", 7: "cursor-5", 8: "cursor-7"} {
		again := durableCopy(t, mem)
		_, err := maintain.Truncate(t.Context(), queuetest.Dir, items[keep-1].Next.Next, &maintain.TruncateOptions{FS: again, LoseCompacted: true})
		require.NoError(t, err)
		require.Equal(t, want, string(queuetest.OpenWriter(t, queuetest.Options(again)).Cursor()), "%d entries kept", keep)
		queuetest.RequireSound(t, again)
	}
}

// requireTruncated checks a queue that was truncated to its first keep entries, and appends.
func requireTruncated(t *testing.T, mem *vfs.Mem, items []queuetest.Item, keep int, highest queue.SegmentID) {
	t.Helper()
	queuetest.RequireSound(t, mem)
	r := queuetest.OpenReader(t, mem)
	queuetest.RequireItems(t, r, items[:keep])
	if keep > 0 {
		require.Equal(t, items[keep-1].Next, r.End())
	}
	for _, it := range items[keep:] {
		_, err := r.DocumentFor(nil, []byte(it.ID), it.At)
		require.ErrorIs(t, err, queue.ErrUnavailable, "an up-to-date index does not have the address")
	}
	opts := queuetest.Options(mem)
	opts.BlockBytes = 300
	w := queuetest.OpenWriter(t, opts)
	want := ""
	if whole := keep &^ 1; whole > 0 {
		want = fmt.Sprint("cursor-", whole-1)
	}
	require.Equal(t, want, string(w.Cursor()))
	added := queuetest.Item{ID: "new", Document: "document"}
	added.Put(t, w)
	require.NoError(t, w.Close())
	if keep < len(items) {
		require.Greater(t, added.At.Segment, highest)
	}
	now := append(slices.Clone(items[:keep]), added)
	queuetest.RequireItems(t, r, now)
	queuetest.RequireSound(t, mem)
	queuetest.RequireHead(t, mem)
	for i, it := range items {
		rest, err := queuetest.TryScan(r, it.Next)
		if i < keep {
			require.NoError(t, err, "entry %d of %d", i, keep)
			require.Len(t, rest, keep-i)
			continue
		}
		var truncated *queue.TruncatedError
		require.ErrorAs(t, err, &truncated, "entry %d of %d", i, keep)
		require.ErrorIs(t, err, queue.ErrTruncated)
		require.NotErrorIs(t, err, queue.ErrForked)
		require.Equal(t, it.Next, truncated.Position)
		require.Empty(t, rest)
	}
}

// TestTruncateIncompleteDirectory: the newest segments were removed by hand, or are older
// copies.
func TestTruncateIncompleteDirectory(t *testing.T) {
	for _, open := range []bool{false, true} {
		source, items := truncateQueue(t, 4, open)
		t.Run(fmt.Sprintf("removed/open=%t", open), func(t *testing.T) {
			for remove := 1; remove <= 3; remove++ {
				mem := source.CrashClone(vfs.KeepAll)
				for n := 4; n > 4-remove; n-- {
					require.NoError(t, mem.RemoveAll(segment.Path(queuetest.Dir, queue.SegmentID(n), segment.SealedSuffix)))
					require.NoError(t, mem.RemoveAll(segment.Path(queuetest.Dir, queue.SegmentID(n), segment.OpenSuffix)))
				}
				_, err := queue.OpenWriter(queuetest.Dir, queuetest.Options(mem))
				require.ErrorIs(t, err, queue.ErrIncomplete)
				require.ErrorContains(t, err, fmt.Sprint("--to ", 4-remove))
				_, err = maintain.Truncate(t.Context(), queuetest.Dir, queue.Address{Segment: 4, Block: 128}, &maintain.TruncateOptions{FS: mem})
				require.ErrorContains(t, err, "segment 4 is missing")
				report := truncateAt(t, mem, queue.Address{Segment: queue.SegmentID(4-remove) + 1})
				require.Zero(t, report.Entries)
				require.Len(t, report.Missing, remove)
				requireTruncated(t, mem, items, 6*(4-remove), 4)
			}
		})
		t.Run(fmt.Sprintf("older copy/open=%t", open), func(t *testing.T) {
			// Segment 3 is an older copy, open and with 4 of 6 entries; 4 is missing.
			mem := source.CrashClone(vfs.KeepAll)
			content, err := vfs.ReadFile(mem, segment.Path(queuetest.Dir, 3, segment.SealedSuffix))
			require.NoError(t, err)
			for _, n := range []queue.SegmentID{3, 4} {
				require.NoError(t, mem.RemoveAll(segment.Path(queuetest.Dir, n, segment.SealedSuffix)))
				require.NoError(t, mem.RemoveAll(segment.Path(queuetest.Dir, n, segment.OpenSuffix)))
			}
			cut := items[16].At.Block
			require.NoError(t, vfs.WriteFileAtomic(mem, segment.Path(queuetest.Dir, 3, segment.OpenSuffix), content[:cut]))
			_, err = queue.OpenWriter(queuetest.Dir, queuetest.Options(mem))
			require.ErrorIs(t, err, queue.ErrIncomplete)
			again := mem.CrashClone(vfs.KeepAll)
			report := truncateAt(t, again, queue.Address{Segment: 3})
			require.EqualValues(t, 4, report.Entries)
			require.Equal(t, []queue.SegmentID{4}, report.Missing)
			requireTruncated(t, again, items, 12, 4)

			// If segment 3 was never sealed elsewhere, its entries may be kept.
			head, err := queue.ReadHead(mem, queuetest.Dir)
			require.NoError(t, err)
			_, err = maintain.Truncate(t.Context(), queuetest.Dir, queue.Address{Segment: 4}, &maintain.TruncateOptions{FS: mem})
			if head.Sealed >= 3 {
				require.ErrorIs(t, err, queue.ErrIncomplete)
				require.ErrorContains(t, err, "--to 2")
			}
			s, err := segment.Open(mem, segment.Path(queuetest.Dir, 2, segment.SealedSuffix), 2)
			require.NoError(t, err)
			head.Sealed, head.Digest = 2, s.Digest()
			s.Close()
			require.NoError(t, queue.WriteHead(mem, queuetest.Dir, head))
			truncateAt(t, mem, queue.Address{Segment: 4})
			requireTruncated(t, mem, items, 16, 4)
		})
	}
}

// TestTruncateOpenSegmentThatIsShorter follows the advice in OpenWriter's error.
func TestTruncateOpenSegmentThatIsShorter(t *testing.T) {
	mem, items := truncateQueue(t, 2, true)
	head, err := queue.ReadHead(mem, queuetest.Dir)
	require.NoError(t, err)
	head.End = items[11].Next
	require.NoError(t, queue.WriteHead(mem, queuetest.Dir, head))
	path := segment.Path(queuetest.Dir, 2, segment.OpenSuffix)
	content, err := vfs.ReadFile(mem, path)
	require.NoError(t, err)
	require.NoError(t, vfs.WriteFileAtomic(mem, path, content[:items[10].At.Block]))
	_, err = queue.OpenWriter(queuetest.Dir, queuetest.Options(mem))
	require.ErrorIs(t, err, queue.ErrIncomplete)
	from := queue.Address{Segment: 2, Block: items[10].At.Block}
	require.ErrorContains(t, err, "--to "+from.String())
	truncateAt(t, mem, from)
	requireTruncated(t, mem, items, 10, 2)
}

// TestTruncateBadAddresses: an error changes nothing.
func TestTruncateBadAddresses(t *testing.T) {
	mem, items := truncateQueue(t, 2, false)
	for _, from := range []queue.Address{{}, {Segment: 4}, {Segment: 9, Block: 128}} {
		_, err := maintain.Truncate(t.Context(), queuetest.Dir, from, &maintain.TruncateOptions{FS: mem})
		require.ErrorContains(t, err, "there is no segment")
	}
	report := truncateAt(t, mem, queue.Address{Segment: 3})
	require.Zero(t, report.Entries)
	require.Empty(t, report.Rewrite)
	require.Equal(t, items[11].Next, report.End)
	w := queuetest.OpenWriter(t, queuetest.Options(mem))
	_, err := maintain.Truncate(t.Context(), queuetest.Dir, queue.Address{Segment: 1}, &maintain.TruncateOptions{FS: mem})
	require.ErrorIs(t, err, queue.ErrLocked)
	require.NoError(t, w.Close())
	_, err = maintain.Truncate(t.Context(), queuetest.Dir, queue.Address{Segment: 1}, &maintain.TruncateOptions{FS: queuetest.NewMem(t)})
	require.ErrorContains(t, err, "it is a copy")
	queuetest.RequireItems(t, queuetest.OpenReader(t, mem), items)
	queuetest.RequireSound(t, mem)
}

// TestTruncateAfterCompaction: older versions of truncated entries may be gone.
func TestTruncateAfterCompaction(t *testing.T) {
	mem := queuetest.NewMem(t)
	w := queuetest.OpenWriter(t, queuetest.Options(mem))
	for n := range 4 {
		for i := range 3 {
			_, err := w.Append(fmt.Append(nil, "id-", i+n), []byte(queuetest.Posting(n)))
			require.NoError(t, err)
		}
		require.NoError(t, w.Seal())
	}
	require.NoError(t, w.Close())
	_, err := maintain.Compact(t.Context(), queuetest.Dir, &maintain.CompactOptions{FS: mem, MaxDead: 0.01, DeleteOriginals: true})
	require.NoError(t, err)
	entries := queuetest.Scan(t, queuetest.OpenReader(t, mem), queue.Position{})
	opts := &maintain.TruncateOptions{FS: mem}
	_, err = maintain.Truncate(t.Context(), queuetest.Dir, queue.Address{Segment: 4}, opts)
	require.ErrorIs(t, err, maintain.ErrCompacted)
	require.Equal(t, entries, queuetest.Scan(t, queuetest.OpenReader(t, mem), queue.Position{}))
	opts.LoseCompacted = true
	_, err = maintain.Truncate(t.Context(), queuetest.Dir, queue.Address{Segment: 2}, opts)
	require.NoError(t, err)
	queuetest.RequireSound(t, mem)
	require.Equal(t, []string{"id-0"}, ids(queuetest.Scan(t, queuetest.OpenReader(t, mem), queue.Position{})))

	// Later appends and compactions keep the truncated range.
	w = queuetest.OpenWriter(t, queuetest.Options(mem))
	for range 3 {
		_, err := w.Append([]byte("id-0"), []byte("again"))
		require.NoError(t, err)
		require.NoError(t, w.Seal())
	}
	require.NoError(t, w.Close())
	_, err = maintain.Compact(t.Context(), queuetest.Dir, &maintain.CompactOptions{FS: mem, MaxDead: 0.01, DeleteOriginals: true})
	require.NoError(t, err)
	r := queuetest.OpenReader(t, mem)
	for _, e := range entries[1:] {
		_, err := queuetest.TryScan(r, e.Next)
		require.ErrorIs(t, err, queue.ErrTruncated, "%v", e)
	}
	require.Equal(t, []string{"id-0"}, ids(queuetest.Scan(t, r, entries[0].Next)))
	queuetest.RequireSound(t, mem)
}

func ids(items []queuetest.Item) (ids []string) {
	for _, it := range items {
		ids = append(ids, it.ID)
	}
	return ids
}

// TestTruncateCrash stops Truncate before each of its operations and cuts the power: the
// queue is in its old or its new state, a writer continues it, and another Truncate
// completes the work.
func TestTruncateCrash(t *testing.T) {
	random, tally := testseed.Rand(t), crashtest.NewTally(t, "crashes")
	for _, open := range []bool{false, true} {
		source, items := truncateQueue(t, 4, open)
		keeps := []int{0, 6, 9, 14, 18, 21} // at the start, between segments, in a block, between blocks
		random.Shuffle(len(keeps), func(i, j int) { keeps[i], keeps[j] = keeps[j], keeps[i] })
		for _, keep := range keeps[:crashtest.Share(2, len(keeps))] {
			from := queue.Address{Segment: 1}
			if keep > 0 {
				from = items[keep-1].Next.Next
			}
			if keep%6 == 0 {
				from = queue.Address{Segment: queue.SegmentID(keep/6) + 1}
			}
			truncate := func(fsys vfs.FS) error {
				_, err := maintain.Truncate(t.Context(), queuetest.Dir, from, &maintain.TruncateOptions{FS: fsys})
				return err
			}
			done := false
			for k := 1; !done; k++ {
				mem := source.CrashClone(vfs.KeepAll)
				err := truncate(queuetest.CrashAfter(mem, k))
				done = err == nil
				require.True(t, done || errors.Is(err, queuetest.ErrCrash), "%v", err)
				for _, way := range crashtest.Ways(random) {
					tally.Case()
					when := fmt.Sprintf("keep %d, before operation %d, %s", keep, k, way.Name)
					after := mem.CrashClone(way.Keep)
					left := len(queuetest.Scan(t, queuetest.OpenReader(t, after), queue.Position{}))
					require.Contains(t, []int{keep, len(items)}, left, when)
					again := after.CrashClone(vfs.KeepAll)
					w, err := queue.OpenWriter(queuetest.Dir, queuetest.Options(again))
					require.NoError(t, err, when)
					require.NoError(t, w.Close())
					require.Len(t, queuetest.Scan(t, queuetest.OpenReader(t, again), queue.Position{}), left, when)
					queuetest.RequireSound(t, again)

					require.NoError(t, truncate(after), when)
					names, err := after.List(queuetest.Dir)
					require.NoError(t, err)
					rewrites := 0
					for _, name := range names {
						if run, ok := segment.ParseRewriteName(name); ok && run.Last == 4 {
							rewrites++
						} else if n, suffix, ok := segment.ParseName(name); ok {
							require.Equal(t, segment.SealedSuffix, suffix)
							require.Less(t, n, from.Segment+1, when)
						}
					}
					require.Equal(t, 1, rewrites, "%s: %v", when, names)
					requireTruncated(t, after, items, keep, 4)
				}
			}
		}
	}
}

// TestTruncateFaults: a disk error is reported, and a later Truncate completes the work.
func TestTruncateFaults(t *testing.T) {
	faults := crashtest.NewTally(t, "faults")
	source, items := truncateQueue(t, 3, true)
	for _, failure := range crashtest.Failures() {
		for k := int64(1); ; k++ {
			mem := source.CrashClone(vfs.KeepAll)
			disk := failure.At(k, mem)
			from := items[8].Next.Next
			_, err := maintain.Truncate(t.Context(), queuetest.Dir, from, &maintain.TruncateOptions{FS: disk})
			disk.Heal()
			if disk.Failed() == 0 {
				require.NoError(t, err)
				break
			}
			faults.Case()
			when := fmt.Sprintf("%s at %d", failure.Name, k)
			if err == nil {
				require.False(t, disk.FailedToWrite(), "%s was not reported", when)
			}
			truncateAt(t, mem, from)
			requireTruncated(t, mem, items, 9, 3)
		}
	}
}

// TestFetchOfTruncatedIsNotGone: the document at an address that was truncated is
// unavailable, not gone: an earlier version of it may exist.
func TestFetchOfTruncatedIsNotGone(t *testing.T) {
	mem, items := truncateQueue(t, 3, false)
	for _, cut := range []int{14, 12, 5} { // inside a segment, between two, before both
		truncateAt(t, mem, items[cut].At)
		r := queuetest.OpenReader(t, mem)
		for i, it := range items {
			got, err := r.DocumentFor(nil, []byte(it.ID), it.At)
			if i < cut {
				require.NoError(t, err)
				require.Equal(t, it.Document, string(got))
				continue
			}
			var gone *queue.GoneError
			require.ErrorIs(t, err, queue.ErrUnavailable)
			require.ErrorIs(t, err, queue.ErrTruncated)
			require.False(t, errors.As(err, &gone))
		}
	}
}

// TestTruncationAfterTheNextBlock: a copy has a compaction of one history, and of another one a
// truncation of its last entry with the segments after it. The reader reports the truncation
// also if it finds it while the last entry is the block to be delivered next.
func TestTruncationAfterTheNextBlock(t *testing.T) {
	write := func(mem *vfs.Mem, ids ...string) (items []queuetest.Item) {
		opts := queuetest.Options(mem)
		opts.BlockBytes = 1
		w := queuetest.OpenWriter(t, opts)
		for _, id := range ids {
			it := queuetest.Item{ID: id, Document: "document of " + id}
			it.Put(t, w)
			items = append(items, it)
		}
		require.NoError(t, w.Seal())
		require.NoError(t, w.Close())
		return items
	}
	before := queuetest.NewSource(t)
	write(before, "a", "a", "b")
	c := write(before, "c", "c", "d")
	write(before, "e")

	truncated := before.CrashClone(vfs.KeepAll)
	_, err := maintain.Truncate(t.Context(), queuetest.Dir, c[2].At, &maintain.TruncateOptions{FS: truncated})
	require.NoError(t, err)
	write(truncated, "f")
	compacted := before.CrashClone(vfs.KeepAll)
	_, err = maintain.Compact(t.Context(), queuetest.Dir, &maintain.CompactOptions{FS: compacted, MaxDead: 0.01})
	require.NoError(t, err)

	mem := queuetest.NewMem(t)
	for _, from := range []*vfs.Mem{compacted, truncated} {
		names, err := from.List(queuetest.Dir)
		require.NoError(t, err)
		for _, name := range names {
			if file, ok := queue.ParseFileName(name); !ok || from == truncated && file.First < 2 {
				continue
			}
			content, err := vfs.ReadFile(from, queuetest.Dir+"/"+name)
			require.NoError(t, err)
			require.NoError(t, vfs.WriteFileAtomic(mem, queuetest.Dir+"/"+name, content))
		}
	}
	got, err := queuetest.TryScan(queuetest.OpenReader(t, mem), queue.Position{})
	require.ErrorIs(t, err, queue.ErrTruncated)
	for _, it := range got {
		require.NotEqual(t, "f", it.ID, "it follows the truncated entry")
	}
}
