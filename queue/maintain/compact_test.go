package maintain_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/internal/virtualtime"
	"docstore/queue"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/require"
)

func TestCompactModel(t *testing.T) {
	for _, codec := range []string{"none", "s2"} {
		t.Run(codec, func(t *testing.T) {
			random := testseed.Rand(t)
			mem := queuetest.NewMem(t)
			m := &queuetest.Model{Random: random, Now: queuetest.Start, Newest: map[string]queuetest.Item{}}
			m.Stopped = []queuetest.Follower{{Index: map[string]queuetest.Indexed{}}}
			opts := queuetest.Options(mem)
			opts.Codec, opts.BlockBytes = codec, 1000
			w := queuetest.OpenWriter(t, opts)
			r := queuetest.OpenReader(t, mem)
			for round := range crashtest.Share(60, 600) {
				m.Write(t, w, 1+random.IntN(150))
				m.Now = m.Now.Add(time.Second)
				m.Stopped = append(m.Stopped, m.Stopped[random.IntN(len(m.Stopped))])
				last := &m.Stopped[len(m.Stopped)-1]
				*last = last.Follow(t, r, random.IntN(500))
				if round%7 == 6 {
					require.NoError(t, w.Close())
					w = queuetest.OpenWriter(t, opts)
				}
				_, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{
					FS: mem, MaxDead: 0.01 + random.Float64(), DeleteOriginals: random.IntN(2) == 0,
					DeleteAfter: time.Duration(random.IntN(3)) * time.Second, MemoryBytes: 1000 + random.Int64N(1<<16),
					Now: func() time.Time { return m.Now },
				})
				require.NoError(t, err)
				for _, from := range m.Stopped {
					m.RequireIndex(t, r, from.Follow(t, r, -1))
				}
				report := queuetest.RequireSound(t, mem)
				require.Empty(t, report.Missing)
			}
		})
	}
}

func TestCompactShrinks(t *testing.T) {
	mem := queuetest.NewMem(t)
	w := queuetest.OpenWriter(t, queuetest.Options(mem))
	var last []queuetest.Item
	for range 10 {
		last = nil
		for i := range 50 {
			it := queuetest.Item{ID: fmt.Sprint(i), Document: queuetest.Posting(i)}
			it.Put(t, w)
			last = append(last, it)
		}
		require.NoError(t, w.Seal())
	}
	now := queuetest.Start.Add(time.Hour)
	var done int64
	compact := func(after time.Duration) maintain.CompactReport {
		before, all := done, int64(0)
		report, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{
			FS: mem, DeleteOriginals: true, DeleteAfter: after, Now: func() time.Time { return now },
			Progress: func(now, total int64) {
				require.GreaterOrEqual(t, now, done-before)
				require.LessOrEqual(t, now, total)
				done, all = before+now, total
			},
		})
		require.NoError(t, err)
		require.Equal(t, all, done-before, "progress ends with the total")
		return report
	}
	report := compact(time.Minute)
	require.Equal(t, report.BytesBefore, done)
	require.Equal(t, 9, report.Replaced)
	require.Equal(t, 1, report.Rewrites)
	require.Zero(t, report.Deleted, "the rewrite is too young")
	now = now.Add(time.Minute)
	rewritten := report.BytesAfter
	done = 0
	report = compact(time.Minute)
	require.Equal(t, rewritten, done, "the rewrite is verified")
	require.Zero(t, report.Rewrites, "nothing is left to do")
	require.Equal(t, 9, report.Deleted)
	require.Less(t, report.DeletedBytes, int64(1<<30))

	names, err := mem.List(queuetest.Dir)
	require.NoError(t, err)
	require.Contains(t, names, "0000000001-0000000009.0001.seg")
	require.Len(t, slices.DeleteFunc(names, func(n string) bool {
		return n == queue.HeadName || n == segment.LockName || n == segment.CompactLockName
	}), 2)
	r := queuetest.OpenReader(t, mem)
	queuetest.RequireItems(t, r, last)
	_, err = r.Document(nil, queue.Address{Segment: 3, Block: segment.HeaderBytes})
	var gone *queue.GoneError
	require.ErrorAs(t, err, &gone)
	require.ErrorIs(t, err, queue.ErrUnavailable)
}

// TestCompactCrash stops a compaction before each of its operations and cuts the power:
// nothing is lost, and the next compaction completes the work.
func TestCompactCrash(t *testing.T) {
	random, tally := testseed.Rand(t), crashtest.NewTally(t, "crashes")
	base := queuetest.NewMem(t)
	w := queuetest.OpenWriter(t, queuetest.Options(base))
	var last []queuetest.Item
	for range 3 {
		last = nil
		for i := range 20 {
			it := queuetest.Item{ID: fmt.Sprint(i), Document: queuetest.Posting(i)}
			it.Put(t, w)
			last = append(last, it)
		}
		require.NoError(t, w.Seal())
	}
	require.NoError(t, w.Close())
	compact := func(fsys vfs.FS) error {
		_, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{FS: fsys, DeleteOriginals: true})
		return err
	}
	for k := 1; ; k++ {
		mem := base.CrashClone(vfs.KeepAll)
		err := compact(queuetest.CrashAfter(mem, k))
		if err == nil {
			require.Greater(t, k, 8)
			return
		}
		require.ErrorIs(t, err, queuetest.ErrCrash)
		for _, way := range crashtest.Ways(random) {
			tally.Case()
			after := mem.CrashClone(way.Keep)
			requireLast := func(after vfs.FS) {
				r, err := queue.OpenReader(queuetest.Dir, &queue.ReaderOptions{FS: after})
				require.NoError(t, err)
				defer r.Close()
				index := queuetest.Follower{Index: map[string]queuetest.Indexed{}}
				index = index.Follow(t, r, -1)
				require.Len(t, index.Index, len(last))
				for _, it := range last {
					document, err := r.DocumentFor(nil, []byte(it.ID), index.Index[it.ID].Address)
					require.NoError(t, err, "before operation %d, %s", k, way.Name)
					require.Equal(t, it.Document, string(document))
				}
				queuetest.RequireSound(t, after)
			}
			requireLast(after)
			// A crash during the next compaction: it may rely only on durable results of
			// the first.
			require.NoError(t, compact(vfs.NewFault(after, func(op vfs.Op) error {
				for range crashtest.Share(1, 12) { // the names that survive are random
					for _, way := range crashtest.Ways(random) {
						if op.Kind.Writes() {
							tally.Case()
							requireLast(after.CrashClone(way.Keep))
						}
					}
				}
				return nil
			})))
			requireLast(after)
			names, err := after.List(queuetest.Dir)
			require.NoError(t, err)
			require.ElementsMatch(t, []string{queue.HeadName, "0000000001-0000000002.0001.seg", "0000000003.seg", segment.LockName, segment.CompactLockName}, names)
			w, err := queue.OpenWriter(queuetest.Dir, queuetest.Options(after))
			require.NoError(t, err)
			require.NoError(t, w.Close())
		}
	}
}

// TestCompactDamage: for any damaged byte of a rewrite the answer is the right document
// or an error, and never that it is gone.
func TestCompactDamage(t *testing.T) {
	mem := queuetest.NewMem(t)
	w := queuetest.OpenWriter(t, queuetest.Options(mem))
	for range 2 {
		for i := range 3 {
			it := queuetest.Item{ID: fmt.Sprint(i), Document: queuetest.Posting(i)}
			it.Put(t, w)
		}
		require.NoError(t, w.Seal())
	}
	keep := queuetest.Item{ID: "1", Document: queuetest.Posting(9)}
	keep.Put(t, w)
	require.NoError(t, w.Seal())
	require.NoError(t, w.Close())
	_, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{FS: mem, MaxDead: 0.1, DeleteOriginals: true})
	require.NoError(t, err)
	const name = "0000000001-0000000002.0001.seg"
	content, err := vfs.ReadFile(mem, queuetest.Dir+"/"+name)
	require.NoError(t, err)
	items := queuetest.Scan(t, queuetest.OpenReader(t, mem), queue.Position{})
	require.Len(t, items, 3)
	live := items[:2]
	for _, damage := range queuetest.Damages {
		for i := range content {
			damaged := damage.Do(slices.Clone(content), i)
			r := queuetest.OpenReader(t, queuetest.MemWith(t, map[string][]byte{name: damaged}))
			for _, it := range live {
				document, err := r.DocumentFor(nil, []byte(it.ID), it.At)
				if err == nil {
					require.Equal(t, queuetest.Posting(int(it.ID[0]-'0')), string(document), "byte %d %s", i, damage.Name)
					continue
				}
				var gone *queue.GoneError
				require.False(t, errors.As(err, &gone), "byte %d %s: %v", i, damage.Name, err)
			}
			r.Close()
		}
	}
}

// TestCompactDeletesOnly: segments with only deletes are rewritten when nothing is left
// to delete.
func TestCompactDeletesOnly(t *testing.T) {
	mem := queuetest.NewMem(t)
	w := queuetest.OpenWriter(t, queuetest.Options(mem))
	for _, deleted := range []bool{false, true} {
		for i := range 50 {
			(&queuetest.Item{ID: fmt.Sprint(i), Document: queuetest.Posting(i), Deleted: deleted}).Put(t, w)
		}
		require.NoError(t, w.Seal())
	}
	(&queuetest.Item{ID: "last", Document: "document"}).Put(t, w)
	require.NoError(t, w.Close())
	compact := func() maintain.CompactReport {
		report, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{FS: mem, DeleteOriginals: true})
		require.NoError(t, err)
		return report
	}
	require.Equal(t, 1, compact().Replaced)
	require.Len(t, queuetest.Scan(t, queuetest.OpenReader(t, mem), queue.Position{}), 51, "the deletes were still needed")
	report := compact()
	require.Equal(t, 1, report.Replaced)
	require.Less(t, report.BytesAfter, report.BytesBefore)
	require.Len(t, queuetest.Scan(t, queuetest.OpenReader(t, mem), queue.Position{}), 1)
	require.Zero(t, compact().Replaced)
	queuetest.RequireSound(t, mem)
}

// TestDropReplacedDuringAFetch: a fetch is in progress while a rewrite replaces its file, which stays in the
// directory. It does not keep the file open for later fetches: neither the sealed file instead of the
// unsealed one, nor one that it has found in an older listing.
func TestDropReplacedDuringAFetch(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		t.Run(fmt.Sprint("sealed=", sealed), func(t *testing.T) {
			virtualtime.Test(t, func(t *testing.T) {
				mem := queuetest.NewMem(t)
				compact := func() {
					later := func() time.Time { return queuetest.Start.Add(time.Hour) }
					report, err := maintain.Compact(t.Context(), queuetest.Dir, &maintain.CompactOptions{FS: mem, EraseDead: true, Now: later})
					require.NoError(t, err)
					require.Equal(t, 1, report.Replaced)
				}
				during := func() {}
				r := queuetest.OpenReader(t, vfs.NewFault(mem, func(op vfs.Op) error {
					if op.Kind == vfs.OpStat && filepath.Base(op.Name) == "0000000001.seg" {
						f := during
						during = func() {}
						f()
					}
					return nil
				}))
				w := queuetest.OpenWriter(t, queuetest.Options(mem))
				old, other := queuetest.Item{ID: "a", Document: "old"}, queuetest.Item{ID: "a", Document: "new"}
				old.Put(t, w)
				require.NoError(t, w.Flush())
				if !sealed {
					queuetest.RequireDocuments(t, r, []queuetest.Item{old})
				}
				other.Put(t, w)
				require.NoError(t, w.Close())
				if !sealed {
					compact()
					time.Sleep(2 * time.Second) // after that a fetch looks for the sealed file
				}
				replaced := false
				during = func() {
					if replaced = true; sealed {
						compact()
					}
					require.NoError(t, r.DropReplaced())
				}
				_, err := r.Document(nil, old.At)
				require.NoError(t, err, "it began before")
				require.True(t, replaced)
				_, err = r.Document(nil, old.At)
				var gone *queue.GoneError
				require.ErrorAs(t, err, &gone)
				queuetest.RequireDocuments(t, r, []queuetest.Item{other})
			})
		})
	}
}

// TestDropReplaced: a removed file does not stay open for fetches, and its documents come
// from the rewrite.
func TestDropReplaced(t *testing.T) {
	mem := queuetest.NewMem(t)
	opts := queuetest.Options(mem)
	opts.Codec, opts.SegmentBytes, opts.DictionaryBytes = "s2", 20_000, eraseDictionaryBytes
	w := queuetest.OpenWriter(t, opts)
	var items, live []queuetest.Item
	for i := range 300 {
		it := queuetest.Item{ID: fmt.Sprint(i), Document: queuetest.Posting(i)}
		if i >= 200 {
			it.ID = fmt.Sprint(2 * (i - 200))
		}
		it.Put(t, w)
		if items = append(items, it); i >= 200 || i%2 == 1 {
			live = append(live, it)
		}
		require.NoError(t, w.Flush())
	}
	require.NoError(t, w.Close())
	r := queuetest.OpenReader(t, mem)
	queuetest.RequireDocuments(t, r, items)
	_, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{FS: mem, MaxDead: 0.001, DeleteOriginals: true})
	require.NoError(t, err)
	old := items[0]
	_, err = r.Document(nil, old.At)
	require.NoError(t, err, "the removed file is still open")
	require.NoError(t, r.DropReplaced())
	_, err = r.Document(nil, old.At)
	var gone *queue.GoneError
	require.ErrorAs(t, err, &gone)
	queuetest.RequireDocuments(t, r, live)

	// A reader without cached files finds the dictionaries of rewrites, too.
	fresh := queuetest.OpenReader(t, mem)
	infos, err := fresh.Segments()
	require.NoError(t, err)
	found := 0
	for _, info := range infos {
		if info.Generation > 0 && info.DictionaryBytes > 0 {
			content, err := fresh.Dictionary(nil, info.Dictionary)
			require.NoError(t, err)
			require.Len(t, content, info.DictionaryBytes)
			found++
		}
	}
	require.Positive(t, found)
}
