package maintain_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"docstore/internal/crashtest"
	"docstore/internal/race"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// losses are the losses that a repair has reported.
type losses []maintain.Loss

func (l *losses) note(loss maintain.Loss) error {
	loss.ID = bytes.Clone(loss.ID)
	*l = append(*l, loss)
	return nil
}

// document reports whether the document at an address is lost and its id known.
func (l losses) document(at queue.Address, id string) bool {
	return slices.ContainsFunc(l, func(loss maintain.Loss) bool {
		return !loss.Unproven && loss.From == at && string(loss.ID) == id
	})
}

// entry reports whether the entry at an address is lost.
func (l losses) entry(at queue.Address) bool {
	return slices.ContainsFunc(l, func(loss maintain.Loss) bool {
		return loss.ID == nil && segment.AddressRange{From: loss.From, To: loss.To}.Holds(at)
	})
}

// stride reduces the number of cases under the race detector, which is slow and needs
// fewer.
func stride(n int) int {
	if race.Enabled {
		return 7 * n
	}
	return n
}

func repairQueue(t testing.TB, fsys vfs.FS) ([]maintain.RepairedFile, losses) {
	t.Helper()
	var lost, dry losses
	wouldRepair, err := maintain.Repair(context.Background(), queuetest.Dir, &maintain.RepairOptions{FS: fsys, DryRun: true, OnLoss: dry.note})
	require.NoError(t, err)
	repaired, err := maintain.Repair(context.Background(), queuetest.Dir, &maintain.RepairOptions{FS: fsys, OnLoss: lost.note})
	require.NoError(t, err)
	require.Equal(t, wouldRepair, repaired)
	require.Equal(t, dry, lost)
	return repaired, lost
}

// requireRepaired repairs a queue, checks that it has the items except for reported
// losses, and continues it.
func requireRepaired(t testing.TB, mem vfs.FS, items []queuetest.Item) ([]maintain.RepairedFile, losses) {
	t.Helper()
	repaired, lost := repairQueue(t, mem)
	report := queuetest.RequireSound(t, mem)
	r, err := queue.OpenReader(queuetest.Dir, &queue.ReaderOptions{FS: mem})
	require.NoError(t, err)
	defer r.Close()
	requireSurvivors(t, r, items, lost)
	again, err := maintain.Repair(context.Background(), queuetest.Dir, &maintain.RepairOptions{FS: mem})
	require.NoError(t, err)
	require.Empty(t, again, "it is whole now")

	end := r.End()
	w, err := queue.OpenWriter(queuetest.Dir, queuetest.Options(mem))
	require.NoError(t, err)
	at, err := w.Append([]byte("new"), []byte("document"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	got := queuetest.Scan(t, r, end)
	require.NotEmpty(t, got)
	require.Equal(t, at, got[len(got)-1].At)
	queuetest.RequireSound(t, mem)
	require.NotZero(t, report.Segments)
	return repaired, lost
}

// requireSurvivors checks that items that are not lost can be fetched and have their
// addresses.
func requireSurvivors(t testing.TB, r *queue.Reader, items []queuetest.Item, lost losses) {
	t.Helper()
	entries := queuetest.Scan(t, r, queue.Position{})
	var want []queuetest.Item
	for _, it := range items {
		document, err := r.DocumentFor(nil, []byte(it.ID), it.At)
		var gone *queue.LostError
		switch {
		case lost.entry(it.At):
			require.ErrorAs(t, err, &gone)
			require.ErrorIs(t, err, queue.ErrUnavailable)
			continue
		case lost.document(it.At, it.ID):
			require.ErrorAs(t, err, &gone)
		case it.Deleted:
			require.ErrorIs(t, err, queue.ErrDeleted)
		default:
			require.NoError(t, err)
			require.Equal(t, it.Document, string(document))
		}
		want = append(want, it)
	}
	require.Len(t, entries, len(want))
	for i, e := range entries {
		require.Equal(t, want[i].ID, e.ID)
		require.Equal(t, want[i].At, e.At)
		require.Equal(t, want[i].Deleted, e.Deleted)
	}
}

// touched returns the items that depend on a byte of a segment: on their table entries or
// the previous ones, which give their offsets, on their ids, or on their documents.
func touched(t testing.TB, content []byte, items []queuetest.Item, at int) (found []queuetest.Item) {
	s := &segment.File{}
	var err error
	s.Header, err = segment.ParseHeader(content[:segment.HeaderBytes])
	require.NoError(t, err)
	in := func(from, to uint32) bool { return int(from) <= at && at < int(to) }
	for _, it := range items {
		if it.At.Segment != s.Header.Segment {
			continue
		}
		h, err := segment.ParseBlockHeader(content[it.At.Block:])
		require.NoError(t, err)
		b := segment.Block{BlockHeader: h, Bytes: content[it.At.Block:][:h.DataOffset()]}
		e := b.Entry(int(it.At.Index))
		rows := it.At.Block + segment.BlockHeaderBytes + segment.EntryBytes*uint32(max(int(it.At.Index)-1, 0))
		ids, data := it.At.Block+uint32(h.IdsOffset()), it.At.Block+uint32(h.DataOffset())
		dictionary := in(segment.HeaderBytes, uint32(s.Header.FirstFrame())) && e.HasCoded()
		if in(rows, it.At.Block+segment.BlockHeaderBytes+segment.EntryBytes*uint32(it.At.Index+1)) ||
			in(ids+e.IdStart, ids+e.IdEnd) || in(data+e.Start, data+e.End) || dictionary {
			found = append(found, it)
		}
	}
	return found
}

// TestRepairEveryByte damages each byte of a segment: after a repair the queue is whole,
// only items that depend on the byte are lost, and a writer continues it.
func TestRepairEveryByte(t *testing.T) {
	for _, codec := range codec.Names() {
		for _, seal := range []bool{true, false} {
			files, items := queuetest.SmallQueue(t, codec, seal)
			for name, content := range files {
				if !seal && name == "0000000001.seg" || codec != "none" && name != "0000000001.seg" {
					continue // the same as in another case
				}
				t.Run(fmt.Sprintf("codec=%s/%s", codec, name), func(t *testing.T) {
					t.Parallel()
					for at := 0; at < len(content); at += stride(1) {
						damaged := bytes.Clone(content)
						damaged[at] ^= 1 << (at % 8)
						requireLosesOnly(t, files, items, name, damaged, at)
					}
				})
			}
		}
	}
}

func requireLosesOnly(t *testing.T, files map[string][]byte, items []queuetest.Item, name string, damaged []byte, at int) {
	changed := maps.Clone(files)
	changed[name] = damaged
	mem := queuetest.SourceWith(t, changed)
	if _, suffix, _ := segment.ParseName(name); suffix == segment.OpenSuffix && len(checkDamage(t, mem)) == 0 {
		return // possibly the result of a crash, which OpenWriter handles
	}
	_, lost := requireRepaired(t, mem, items)
	may := touched(t, files[name], items, at)
	for _, it := range items {
		if lost.entry(it.At) || lost.document(it.At, it.ID) {
			require.True(t, slices.ContainsFunc(may, func(m queuetest.Item) bool { return m.At == it.At }), "byte %d: %s at %s is lost", at, it.ID, it.At)
		}
	}
}

// checkDamage returns the damage that a check finds.
func checkDamage(t testing.TB, fsys vfs.FS) []*queue.CorruptionError {
	report, err := maintain.Check(context.Background(), queuetest.Dir, &maintain.CheckOptions{FS: fsys})
	require.NoError(t, err)
	return report.Damage
}

// TestRepairLargerDamage cuts, zeroes and overwrites a segment from each byte on.
func TestRepairLargerDamage(t *testing.T) {
	for _, codec := range []string{"none", "s2"} {
		files, items := queuetest.SmallQueue(t, codec, true)
		for name, content := range files {
			for _, damage := range []struct {
				name string
				do   func(content []byte, at int) []byte
			}{
				{"cut", func(content []byte, at int) []byte { return content[:at] }},
				{"zeroed to the end", func(content []byte, at int) []byte { clear(content[at:]); return content }},
				{"zeroed 64", func(content []byte, at int) []byte { clear(content[at:min(at+64, len(content))]); return content }},
				{"garbage 200", func(content []byte, at int) []byte {
					for i := at; i < min(at+200, len(content)); i++ {
						content[i] = byte(i * 37)
					}
					return content
				}},
				{"removed 10", func(content []byte, at int) []byte { return slices.Delete(content, at, min(at+10, len(content))) }},
				{"inserted 10", func(content []byte, at int) []byte { return slices.Insert(content, at, make([]byte, 10)...) }},
			} {
				t.Run(fmt.Sprintf("codec=%s/%s/%s", codec, name, damage.name), func(t *testing.T) {
					t.Parallel()
					for at := 0; at < len(content); at += stride(3) {
						changed := maps.Clone(files)
						changed[name] = damage.do(bytes.Clone(content), at)
						if !bytes.Equal(changed[name], content) {
							requireRepaired(t, queuetest.SourceWith(t, changed), items)
						}
					}
				})
			}
		}
	}
}

// longQueue has count segments of some blocks.
func longQueue(t testing.TB, fsys vfs.FS, count int) (items []queuetest.Item) {
	opts := queuetest.Options(fsys)
	opts.BlockBytes = 500
	w := queuetest.OpenWriter(t, opts)
	for n := range count * 9 {
		it := queuetest.Item{ID: fmt.Sprint("id-", n%20), Document: queuetest.Posting(n)[:150]}
		if n%7 == 6 {
			it.Document, it.Deleted = "", true
		}
		it.Put(t, w)
		w.SetCursor([]byte(fmt.Sprint("line ", n)))
		items = append(items, it)
		if n%9 == 8 {
			require.NoError(t, w.Seal())
		}
	}
	require.NoError(t, w.Close())
	return items
}

func TestRepairMissingSegments(t *testing.T) {
	mem := queuetest.NewMem(t)
	items := longQueue(t, mem, 6)
	for _, n := range []queue.SegmentID{1, 3, 4} {
		require.NoError(t, mem.Remove(segment.Path(queuetest.Dir, n, segment.SealedSuffix)))
	}
	repaired, lost := requireRepaired(t, mem, items)
	require.Len(t, repaired, 2)
	require.Equal(t, "/queue/0000000003-0000000004.0001.seg", repaired[1].Rewrite)
	require.True(t, repaired[1].Missing)
	require.Equal(t, losses{
		{From: queue.Address{Segment: 1}, To: queue.Address{Segment: 2}}, {From: queue.Address{Segment: 3}, To: queue.Address{Segment: 5}},
	}, lost)
}

// TestRepairWithReaders: readers at any position, of the queue and of a copy that has the
// file from before the damage, continue.
func TestRepairWithReaders(t *testing.T) {
	mem := queuetest.NewMem(t)
	items := longQueue(t, mem, 4)
	copied := mem.CrashClone(vfs.KeepAll)
	require.NoError(t, copied.Remove(queuetest.Dir+"/"+segment.LockName))
	var stopped []queuetest.Follower
	r := queuetest.OpenReader(t, mem)
	for n := range len(items) + 1 {
		f := queuetest.Follower{Index: map[string]queuetest.Indexed{}}
		stopped = append(stopped, f.Follow(t, r, n))
	}
	const name = queuetest.Dir + "/0000000002.seg"
	content, err := vfs.ReadFile(mem, name)
	require.NoError(t, err)
	var second []queuetest.Item
	for _, it := range items {
		if it.At.Segment == 2 {
			second = append(second, it)
		}
	}
	content[second[0].At.Block+40] ^= 1                                        // a table
	content[bytes.Index(content, []byte(second[len(second)-1].Document))] ^= 1 // a document
	require.NoError(t, mem.Remove(name))
	require.NoError(t, vfs.WriteFileAtomic(mem, name, content))
	repaired, lost := requireRepaired(t, mem, items)
	require.Len(t, repaired, 1)
	require.NotEmpty(t, lost)

	// A running tail, and the copy after it has the rewrite.
	rewrite, err := vfs.ReadFile(mem, repaired[0].Rewrite)
	require.NoError(t, err)
	require.NoError(t, vfs.WriteFileAtomic(copied, repaired[0].Rewrite, rewrite))
	behind, err := vfs.ReadFile(mem, segment.Path(queuetest.Dir, 5, segment.SealedSuffix))
	require.NoError(t, err)
	require.NoError(t, vfs.WriteFileAtomic(copied, segment.Path(queuetest.Dir, 5, segment.SealedSuffix), behind))
	for _, fsys := range []vfs.FS{mem, copied} {
		reader := queuetest.OpenReader(t, fsys)
		for _, f := range stopped {
			end := f.Follow(t, reader, -1)
			require.Contains(t, end.Index, "new")
			for id, known := range end.Index {
				_, err := reader.DocumentFor(nil, []byte(id), known.Address)
				isLost := lost.entry(known.Address) || lost.document(known.Address, id)
				if fsys == vfs.FS(mem) && isLost {
					require.ErrorIs(t, err, queue.ErrUnavailable)
					continue
				}
				require.NoError(t, err, "the copy has what was lost")
			}
		}
	}
}

// TestTailContinuesAfterRepair: a tail that waits in an incomplete file continues with
// the repaired one.
func TestTailContinuesAfterRepair(t *testing.T) {
	mem := queuetest.NewMem(t)
	items := longQueue(t, mem, 3)
	name := segment.Path(queuetest.Dir, 2, segment.SealedSuffix)
	content, err := vfs.ReadFile(mem, name)
	require.NoError(t, err)
	require.NoError(t, mem.Remove(name))
	require.NoError(t, vfs.WriteFileAtomic(mem, name, content[:len(content)-segment.FooterBytes]))

	var once sync.Once
	waiting := make(chan struct{})
	r, err := queue.OpenReader(queuetest.Dir, &queue.ReaderOptions{
		FS: mem, PollInterval: time.Millisecond, OnCaughtUp: func(queue.Position) { once.Do(func() { close(waiting) }) },
	})
	require.NoError(t, err)
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []queue.Address
	done := make(chan error, 1)
	errEnough := errors.New("enough")
	go func() {
		done <- r.Tail(ctx, queue.Position{}, func(e queue.Entry) error {
			got = append(got, e.Address)
			if e.Address == items[len(items)-1].At {
				return errEnough
			}
			return nil
		})
	}()
	<-waiting
	_, lost := repairQueue(t, mem)
	require.Empty(t, lost, "only the footer is gone, which can be computed")
	require.ErrorIs(t, <-done, errEnough)
	require.Len(t, got, len(items))
}

// TestCompactKeepsLosses: a compaction keeps the losses recorded by a repair, and all
// deletes after a loss, because they may be needed.
func TestCompactKeepsLosses(t *testing.T) {
	mem := queuetest.NewMem(t)
	items := longQueue(t, mem, 6)
	require.NoError(t, mem.Remove(segment.Path(queuetest.Dir, 1, segment.SealedSuffix)))
	_, lost := repairQueue(t, mem)
	_, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{FS: mem, MaxDead: 0.01, DeleteOriginals: true})
	require.NoError(t, err)
	r := queuetest.OpenReader(t, mem)
	for _, it := range items {
		_, err := r.DocumentFor(nil, []byte(it.ID), it.At)
		var gone *queue.LostError
		require.Equal(t, lost.entry(it.At), errors.As(err, &gone), "%v", err)
	}
	newest := map[string]queuetest.Item{}
	for _, it := range items {
		newest[it.ID] = it
	}
	for _, e := range queuetest.Scan(t, r, queue.Position{}) {
		delete(newest, e.ID)
	}
	for id, it := range newest {
		require.True(t, lost.entry(it.At), "%s is not in the queue any more", id)
	}
	queuetest.RequireSound(t, mem)
}

// TestRepairDamagedRewrite: the replaced files are used again if they exist.
func TestRepairDamagedRewrite(t *testing.T) {
	for _, originals := range []bool{true, false} {
		base := queuetest.NewMem(t)
		longQueue(t, base, 4)
		_, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{FS: base, MaxDead: 0.01, DeleteOriginals: !originals})
		require.NoError(t, err)
		items := queuetest.Scan(t, queuetest.OpenReader(t, base), queue.Position{})
		for i := range items {
			if !items[i].Deleted {
				document, err := queuetest.OpenReader(t, base).Document(nil, items[i].At)
				require.NoError(t, err)
				items[i].Document = string(document)
			}
		}
		l, err := segment.List(base, queuetest.Dir)
		require.NoError(t, err)
		require.Len(t, l.Rewrites, 1)
		name := l.Rewrites[0].Path(queuetest.Dir)
		content, err := vfs.ReadFile(base, name)
		require.NoError(t, err)
		for at := 0; at < len(content); at += stride(1) {
			mem := base.CrashClone(vfs.KeepAll)
			damaged := bytes.Clone(content)
			damaged[at] ^= 1 << (at % 8)
			require.NoError(t, mem.Remove(name))
			require.NoError(t, vfs.WriteFileAtomic(mem, name, damaged))
			if originals {
				repaired, lost := repairQueue(t, mem)
				require.Len(t, repaired, 1)
				require.Empty(t, repaired[0].Rewrite)
				require.Empty(t, lost)
				queuetest.RequireSound(t, mem)
				queuetest.RequireDocuments(t, queuetest.OpenReader(t, mem), items)
				continue
			}
			repaired, lost := requireRepaired(t, mem, items)
			require.Equal(t, segment.Run{First: l.Rewrites[0].First, Last: l.Rewrites[0].Last, Generation: 2}.Path(queuetest.Dir), repaired[0].Rewrite)
			require.LessOrEqual(t, len(lost), 4)
		}
	}
}

func TestRepairRefuses(t *testing.T) {
	files, _ := queuetest.SmallQueue(t, "none", true)
	_, err := maintain.Repair(context.Background(), queuetest.Dir, &maintain.RepairOptions{FS: queuetest.MemWith(t, files)})
	require.ErrorContains(t, err, "it is a copy")
	mem := queuetest.SourceWith(t, files)
	w := queuetest.OpenWriter(t, queuetest.Options(mem))
	_, err = maintain.Repair(context.Background(), queuetest.Dir, &maintain.RepairOptions{FS: mem})
	require.ErrorIs(t, err, queue.ErrLocked)
	require.NoError(t, w.Close())

	other := queuetest.NewMem(t)
	w = queuetest.OpenWriter(t, queuetest.Options(other))
	_, err = w.Append([]byte("id"), []byte("another history"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	files["0000000001.seg"], err = vfs.ReadFile(other, queuetest.Dir+"/0000000001.seg")
	require.NoError(t, err)
	_, err = maintain.Repair(context.Background(), queuetest.Dir, &maintain.RepairOptions{FS: queuetest.SourceWith(t, files)})
	require.ErrorIs(t, err, queue.ErrForked)
}

// TestRepairCrash stops a repair before each of its operations and cuts the power.
func TestRepairCrash(t *testing.T) {
	random, tally := testseed.Rand(t), crashtest.NewTally(t, "crashes")
	files, items := queuetest.SmallQueue(t, "none", true)
	files["0000000001.seg"][items[0].At.Block+50] ^= 1
	delete(files, segment.LockName)
	base := queuetest.SourceWith(t, files)
	for k := 1; ; k++ {
		mem := base.CrashClone(vfs.KeepAll)
		_, err := maintain.Repair(context.Background(), queuetest.Dir, &maintain.RepairOptions{FS: queuetest.CrashAfter(mem, k)})
		if err == nil {
			require.Greater(t, k, 8)
			return
		}
		require.ErrorIs(t, err, queuetest.ErrCrash)
		for _, way := range crashtest.Ways(random) {
			tally.Case()
			after := mem.CrashClone(way.Keep)
			requireRepair := func(after *vfs.Mem, fsys vfs.FS) {
				repaired, err := maintain.Repair(context.Background(), queuetest.Dir, &maintain.RepairOptions{FS: fsys})
				require.NoError(t, err, "before operation %d, %s", k, way.Name)
				require.LessOrEqual(t, len(repaired), 1)
				queuetest.RequireSound(t, after)
				r, err := queue.OpenReader(queuetest.Dir, &queue.ReaderOptions{FS: after})
				require.NoError(t, err)
				require.GreaterOrEqual(t, len(queuetest.Scan(t, r, queue.Position{})), len(items)-2)
				require.NoError(t, r.Close())
			}
			requireRepair(after, vfs.NewFault(after, func(op vfs.Op) error {
				for _, wayAgain := range crashtest.Ways(random) {
					if op.Kind.Writes() {
						tally.Case()
						again := after.CrashClone(wayAgain.Keep)
						requireRepair(again, again)
					}
				}
				return nil
			}))
		}
	}
}

// TestRepairUsesDigestInHead: a damaged footer of the newest segment, and a missing
// newest segment, are repaired to the state in the head.
func TestRepairUsesDigestInHead(t *testing.T) {
	for _, missing := range []bool{true, false} {
		mem := queuetest.NewMem(t)
		for range 2 {
			w := queuetest.OpenWriter(t, queuetest.Options(mem))
			_, err := w.Append([]byte("id"), []byte("document"))
			require.NoError(t, err)
			require.NoError(t, w.Close())
		}
		head := queuetest.RequireHead(t, mem)
		path := segment.Path(queuetest.Dir, 2, segment.SealedSuffix)
		content, err := vfs.ReadFile(mem, path)
		require.NoError(t, err)
		require.NoError(t, mem.Remove(path))
		if !missing {
			content[len(content)-1] ^= 1
			require.NoError(t, vfs.WriteFileAtomic(mem, path, content))
		}
		repaired, _ := repairQueue(t, mem)
		require.Len(t, repaired, 1)
		after := queuetest.RequireHead(t, mem)
		require.Equal(t, head.Digest, after.Digest)
		require.Equal(t, head.Sealed, after.Sealed)
		require.NoError(t, queuetest.OpenWriter(t, queuetest.Options(mem)).Close())
		queuetest.RequireSound(t, mem)
	}
}
