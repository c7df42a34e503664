package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"docstore/internal/crashtest"
	"docstore/internal/race"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/require"
)

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

// sourceWith returns a directory that a Writer has opened, with the files.
func sourceWith(t testing.TB, files map[string][]byte) *vfs.Mem {
	mem := memWith(t, files)
	f, err := mem.Create(queueDir + "/" + segment.LockName)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, mem.SyncDir(queueDir))
	return mem
}

func repairQueue(t testing.TB, fsys vfs.FS) ([]maintain.RepairedFile, losses) {
	t.Helper()
	var lost, dry losses
	wouldRepair, err := maintain.Repair(context.Background(), queueDir, &maintain.RepairOptions{FS: fsys, DryRun: true, OnLoss: dry.note})
	require.NoError(t, err)
	repaired, err := maintain.Repair(context.Background(), queueDir, &maintain.RepairOptions{FS: fsys, OnLoss: lost.note})
	require.NoError(t, err)
	require.Equal(t, wouldRepair, repaired)
	require.Equal(t, dry, lost)
	return repaired, lost
}

// requireRepaired repairs a queue, checks that it has the items except for reported
// losses, and continues it.
func requireRepaired(t testing.TB, mem vfs.FS, items []item) ([]maintain.RepairedFile, losses) {
	t.Helper()
	repaired, lost := repairQueue(t, mem)
	report := requireSound(t, mem)
	r, err := queue.OpenReader(queueDir, &queue.ReaderOptions{FS: mem})
	require.NoError(t, err)
	defer r.Close()
	requireSurvivors(t, r, items, lost)
	again, err := maintain.Repair(context.Background(), queueDir, &maintain.RepairOptions{FS: mem})
	require.NoError(t, err)
	require.Empty(t, again, "it is whole now")

	end := r.End()
	w, err := queue.OpenWriter(queueDir, testOptions(mem))
	require.NoError(t, err)
	at, err := w.Append([]byte("new"), []byte("document"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	got := scan(t, r, end)
	require.NotEmpty(t, got)
	require.Equal(t, at, got[len(got)-1].at)
	requireSound(t, mem)
	require.NotZero(t, report.Segments)
	return repaired, lost
}

// requireSurvivors checks that items that are not lost can be fetched and have their
// addresses.
func requireSurvivors(t testing.TB, r *queue.Reader, items []item, lost losses) {
	t.Helper()
	entries := scan(t, r, queue.Position{})
	var want []item
	for _, it := range items {
		document, err := r.DocumentFor(nil, []byte(it.id), it.at)
		var gone *queue.LostError
		switch {
		case lost.entry(it.at):
			require.ErrorAs(t, err, &gone)
			require.ErrorIs(t, err, queue.ErrUnavailable)
			continue
		case lost.document(it.at, it.id):
			require.ErrorAs(t, err, &gone)
		case it.deleted:
			require.ErrorIs(t, err, queue.ErrDeleted)
		default:
			require.NoError(t, err)
			require.Equal(t, it.document, string(document))
		}
		want = append(want, it)
	}
	require.Len(t, entries, len(want))
	for i, e := range entries {
		require.Equal(t, want[i].id, e.id)
		require.Equal(t, want[i].at, e.at)
		require.Equal(t, want[i].deleted, e.deleted)
	}
}

// touched returns the items that depend on a byte of a segment: on their table entries or
// the previous ones, which give their offsets, on their ids, or on their documents.
func touched(t testing.TB, content []byte, items []item, at int) (found []item) {
	s := &segment.File{}
	var err error
	s.Header, err = segment.ParseHeader(content[:segment.HeaderBytes])
	require.NoError(t, err)
	in := func(from, to uint32) bool { return int(from) <= at && at < int(to) }
	for _, it := range items {
		if it.at.Segment != s.Header.Segment {
			continue
		}
		h, err := segment.ParseBlockHeader(content[it.at.Block:])
		require.NoError(t, err)
		b := segment.Block{BlockHeader: h, Bytes: content[it.at.Block:][:h.DataOffset()]}
		e := b.Entry(int(it.at.Index))
		rows := it.at.Block + segment.BlockHeaderBytes + segment.EntryBytes*uint32(max(int(it.at.Index)-1, 0))
		ids, data := it.at.Block+uint32(h.IdsOffset()), it.at.Block+uint32(h.DataOffset())
		dictionary := in(segment.HeaderBytes, uint32(s.Header.FirstFrame())) && e.HasCoded()
		if in(rows, it.at.Block+segment.BlockHeaderBytes+segment.EntryBytes*uint32(it.at.Index+1)) ||
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
			files, items := smallQueue(t, codec, seal)
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

func requireLosesOnly(t *testing.T, files map[string][]byte, items []item, name string, damaged []byte, at int) {
	changed := maps.Clone(files)
	changed[name] = damaged
	mem := sourceWith(t, changed)
	if _, suffix, _ := segment.ParseName(name); suffix == segment.OpenSuffix && len(checkDamage(t, mem)) == 0 {
		return // possibly the result of a crash, which OpenWriter handles
	}
	_, lost := requireRepaired(t, mem, items)
	may := touched(t, files[name], items, at)
	for _, it := range items {
		if lost.entry(it.at) || lost.document(it.at, it.id) {
			require.True(t, slices.ContainsFunc(may, func(m item) bool { return m.at == it.at }), "byte %d: %s at %s is lost", at, it.id, it.at)
		}
	}
}

// checkDamage returns the damage that a check finds.
func checkDamage(t testing.TB, fsys vfs.FS) []*queue.CorruptionError {
	report, err := maintain.Check(context.Background(), queueDir, &maintain.CheckOptions{FS: fsys})
	require.NoError(t, err)
	return report.Damage
}

// TestRepairLargerDamage cuts, zeroes and overwrites a segment from each byte on.
func TestRepairLargerDamage(t *testing.T) {
	for _, codec := range []string{"none", "s2"} {
		files, items := smallQueue(t, codec, true)
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
							requireRepaired(t, sourceWith(t, changed), items)
						}
					}
				})
			}
		}
	}
}

// longQueue has count segments of some blocks.
func longQueue(t testing.TB, fsys vfs.FS, count int) (items []item) {
	opts := testOptions(fsys)
	opts.BlockBytes = 500
	w := openWriter(t, opts)
	for n := range count * 9 {
		it := item{id: fmt.Sprint("id-", n%20), document: posting(n)[:150]}
		if n%7 == 6 {
			it.document, it.deleted = "", true
		}
		it.put(t, w)
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
	mem := newMem(t)
	items := longQueue(t, mem, 6)
	for _, n := range []queue.SegmentID{1, 3, 4} {
		require.NoError(t, mem.Remove(segment.Path(queueDir, n, segment.SealedSuffix)))
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
	mem := newMem(t)
	items := longQueue(t, mem, 4)
	copied := mem.CrashClone(vfs.KeepAll)
	require.NoError(t, copied.Remove(queueDir+"/"+segment.LockName))
	var stopped []follower
	r := openReader(t, mem)
	for n := range len(items) + 1 {
		f := follower{index: map[string]indexed{}}
		stopped = append(stopped, f.follow(t, r, n))
	}
	const name = queueDir + "/0000000002.seg"
	content, err := vfs.ReadFile(mem, name)
	require.NoError(t, err)
	var second []item
	for _, it := range items {
		if it.at.Segment == 2 {
			second = append(second, it)
		}
	}
	content[second[0].at.Block+40] ^= 1                                        // a table
	content[bytes.Index(content, []byte(second[len(second)-1].document))] ^= 1 // a document
	require.NoError(t, mem.Remove(name))
	require.NoError(t, vfs.WriteFileAtomic(mem, name, content))
	repaired, lost := requireRepaired(t, mem, items)
	require.Len(t, repaired, 1)
	require.NotEmpty(t, lost)

	// A running tail, and the copy after it has the rewrite.
	rewrite, err := vfs.ReadFile(mem, repaired[0].Rewrite)
	require.NoError(t, err)
	require.NoError(t, vfs.WriteFileAtomic(copied, repaired[0].Rewrite, rewrite))
	behind, err := vfs.ReadFile(mem, segment.Path(queueDir, 5, segment.SealedSuffix))
	require.NoError(t, err)
	require.NoError(t, vfs.WriteFileAtomic(copied, segment.Path(queueDir, 5, segment.SealedSuffix), behind))
	for _, fsys := range []vfs.FS{mem, copied} {
		reader := openReader(t, fsys)
		for _, f := range stopped {
			end := f.follow(t, reader, -1)
			require.Contains(t, end.index, "new")
			for id, known := range end.index {
				_, err := reader.DocumentFor(nil, []byte(id), known.address)
				isLost := lost.entry(known.address) || lost.document(known.address, id)
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
	mem := newMem(t)
	items := longQueue(t, mem, 3)
	name := segment.Path(queueDir, 2, segment.SealedSuffix)
	content, err := vfs.ReadFile(mem, name)
	require.NoError(t, err)
	require.NoError(t, mem.Remove(name))
	require.NoError(t, vfs.WriteFileAtomic(mem, name, content[:len(content)-segment.FooterBytes]))

	r := openReader(t, mem)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []queue.Address
	waiting := make(chan struct{})
	r.Options().OnCaughtUp = func(queue.Position) {
		select {
		case <-waiting:
		default:
			close(waiting)
		}
	}
	done := make(chan error, 1)
	errEnough := errors.New("enough")
	go func() {
		done <- r.Tail(ctx, queue.Position{}, func(e queue.Entry) error {
			got = append(got, e.Address)
			if e.Address == items[len(items)-1].at {
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
	mem := newMem(t)
	items := longQueue(t, mem, 6)
	require.NoError(t, mem.Remove(segment.Path(queueDir, 1, segment.SealedSuffix)))
	_, lost := repairQueue(t, mem)
	_, err := maintain.Compact(context.Background(), queueDir, &maintain.CompactOptions{FS: mem, MaxDead: 0.01, DeleteOriginals: true})
	require.NoError(t, err)
	r := openReader(t, mem)
	for _, it := range items {
		_, err := r.DocumentFor(nil, []byte(it.id), it.at)
		var gone *queue.LostError
		require.Equal(t, lost.entry(it.at), errors.As(err, &gone), "%v", err)
	}
	newest := map[string]item{}
	for _, it := range items {
		newest[it.id] = it
	}
	for _, e := range scan(t, r, queue.Position{}) {
		delete(newest, e.id)
	}
	for id, it := range newest {
		require.True(t, lost.entry(it.at), "%s is not in the queue any more", id)
	}
	requireSound(t, mem)
}

// TestRepairDamagedRewrite: the replaced files are used again if they exist.
func TestRepairDamagedRewrite(t *testing.T) {
	for _, originals := range []bool{true, false} {
		base := newMem(t)
		longQueue(t, base, 4)
		_, err := maintain.Compact(context.Background(), queueDir, &maintain.CompactOptions{FS: base, MaxDead: 0.01, DeleteOriginals: !originals})
		require.NoError(t, err)
		items := scan(t, openReader(t, base), queue.Position{})
		for i := range items {
			if !items[i].deleted {
				document, err := openReader(t, base).Document(nil, items[i].at)
				require.NoError(t, err)
				items[i].document = string(document)
			}
		}
		l, err := segment.List(base, queueDir)
		require.NoError(t, err)
		require.Len(t, l.Rewrites, 1)
		name := l.Rewrites[0].Path(queueDir)
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
				requireSound(t, mem)
				requireDocuments(t, openReader(t, mem), items)
				continue
			}
			repaired, lost := requireRepaired(t, mem, items)
			require.Equal(t, segment.Run{First: l.Rewrites[0].First, Last: l.Rewrites[0].Last, Generation: 2}.Path(queueDir), repaired[0].Rewrite)
			require.LessOrEqual(t, len(lost), 4)
		}
	}
}

func TestRepairRefuses(t *testing.T) {
	files, _ := smallQueue(t, "none", true)
	_, err := maintain.Repair(context.Background(), queueDir, &maintain.RepairOptions{FS: memWith(t, files)})
	require.ErrorContains(t, err, "it is a copy")
	mem := sourceWith(t, files)
	w := openWriter(t, testOptions(mem))
	_, err = maintain.Repair(context.Background(), queueDir, &maintain.RepairOptions{FS: mem})
	require.ErrorIs(t, err, queue.ErrLocked)
	require.NoError(t, w.Close())

	other := newMem(t)
	w = openWriter(t, testOptions(other))
	_, err = w.Append([]byte("id"), []byte("another history"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	files["0000000001.seg"], err = vfs.ReadFile(other, queueDir+"/0000000001.seg")
	require.NoError(t, err)
	_, err = maintain.Repair(context.Background(), queueDir, &maintain.RepairOptions{FS: sourceWith(t, files)})
	require.ErrorIs(t, err, queue.ErrForked)
}

// TestRepairCrash stops a repair before each of its operations and cuts the power.
func TestRepairCrash(t *testing.T) {
	random, tally := testseed.Rand(t), crashtest.NewTally(t, "crashes")
	files, items := smallQueue(t, "none", true)
	files["0000000001.seg"][items[0].at.Block+50] ^= 1
	delete(files, segment.LockName)
	base := sourceWith(t, files)
	for k := 1; ; k++ {
		mem := base.CrashClone(vfs.KeepAll)
		_, err := maintain.Repair(context.Background(), queueDir, &maintain.RepairOptions{FS: crashAfter(mem, k)})
		if err == nil {
			require.Greater(t, k, 8)
			return
		}
		require.ErrorIs(t, err, errCrash)
		for _, way := range crashtest.Ways(random) {
			tally.Case()
			after := mem.CrashClone(way.Keep)
			requireRepair := func(after *vfs.Mem, fsys vfs.FS) {
				repaired, err := maintain.Repair(context.Background(), queueDir, &maintain.RepairOptions{FS: fsys})
				require.NoError(t, err, "before operation %d, %s", k, way.Name)
				require.LessOrEqual(t, len(repaired), 1)
				requireSound(t, after)
				r, err := queue.OpenReader(queueDir, &queue.ReaderOptions{FS: after})
				require.NoError(t, err)
				require.GreaterOrEqual(t, len(scan(t, r, queue.Position{})), len(items)-2)
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
