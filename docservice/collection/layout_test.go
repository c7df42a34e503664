package collection

import (
	"encoding/binary"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/internal/vfs"
	"docstore/lsm"
	"docstore/queue"
	"docstore/queue/maintain"
)

// TestOldIndex: an index of a build before 2026-11-22, whose values have no places, is removed
// and built again from the queue, whatever SERVING names. Until then ids are unavailable.
func TestOldIndex(t *testing.T) {
	for _, left := range []string{"alone", "while it was replaced", "after a return to such a build"} {
		t.Run(left, func(t *testing.T) {
			f := newMemFixture(t)
			f.putMany("doc", 100)
			if left != "alone" {
				require.NoError(t, f.ready().Close())
			}
			f.putMany("more", 100)
			old := filepath.Join(f.dir, "index-0001")
			f.leaveOldIndex(old)
			replace(t, f.fs, old+verifiedExtension, nil)
			replace(t, f.fs, old+verifiedExtension+vfs.TmpSuffix, nil)
			if left == "while it was replaced" {
				replace(t, f.fs, filepath.Join(f.dir, servingName), []byte("index-0001\n"))
			}
			c := f.open()
			for {
				_, err := c.Get(nil, []byte("more-7"))
				if err == nil {
					break
				}
				require.ErrorIs(t, err, docservice.ErrUnavailable)
			}
			f.awaitIndex(c, firstIndex)
			requireDocument(t, c, "doc-7", documentOf("doc-7"))
			requireDocument(t, c, "more-7", documentOf("more-7"))
			requireNone(t, c, "none", docservice.ErrNotFound)
			names, err := f.fs.List(f.dir)
			require.NoError(t, err)
			require.Equal(t, []string{servingName, firstIndex.name()}, names)
		})
	}
}

// leaveOldIndex builds an index of the present queue with values without places:
// segment u32, block u32, index u16, 0 u16, expiry u32, stored bytes u32.
func (f *fixture) leaveOldIndex(path string) {
	f.t.Helper()
	r, err := queue.OpenReader(f.queueDir, &queue.ReaderOptions{FS: f.fs})
	require.NoError(f.t, err)
	require.NoError(f.t, f.fs.MkdirAll(path))
	index, err := lsm.Open(path, &lsm.Options{FS: f.fs})
	require.NoError(f.t, err)
	var batch lsm.Batch
	var state indexState
	require.NoError(f.t, r.Scan(f.t.Context(), queue.Position{}, func(e queue.Entry) error {
		value := entryOf(&e).append(nil)[:10]
		value = binary.LittleEndian.AppendUint64(value, 0)[:16]
		state.position = e.Next
		return batch.Set(e.ID, binary.LittleEndian.AppendUint32(value, uint32(e.StoredBytes)))
	}))
	require.NoError(f.t, state.putIn(&batch))
	require.NoError(f.t, index.Apply(&batch))
	require.NoError(f.t, index.Close())
	require.NoError(f.t, r.Close())
}

// TestServedIndexIsRecorded: after a takeover whose last step failed, to remove the previous
// index, the new one is served, and the previous one is removed by the next start.
func TestServedIndexIsRecorded(t *testing.T) {
	var broken atomic.Bool
	files := vfs.NewFault(vfs.NewMem(), func(op vfs.Op) error {
		if broken.Load() && op.Kind == vfs.OpRename && strings.HasSuffix(op.Name, firstIndex.name()+removedExtension) {
			return syscall.EIO
		}
		return nil
	})
	f := newFixture(t, files, string(filepath.Separator))
	f.putMany("doc", 100)
	c := f.ready()
	broken.Store(true)
	require.NoError(t, RequestReindex(f.fs, f.dir))
	waitFor(t, c, "another index is served", func(s Status) bool {
		return c.serving.Load().number == firstIndex.next() && s.Replacement == nil
	})
	require.NoError(t, c.Close())
	numbers, err := listIndexes(f.fs, f.dir)
	require.NoError(t, err)
	require.Equal(t, []indexNumber{firstIndex.next(), firstIndex}, numbers)
	temporary := firstIndex.verifiedPath(f.dir) + vfs.TmpSuffix // its rename has failed, too
	replace(t, f.fs, temporary, nil)
	broken.Store(false)
	c = f.ready()
	f.awaitIndex(c, firstIndex.next())
	_, err = f.fs.Stat(temporary)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Zero(t, c.Status().Applied)

	// The record is missing in a checkpoint, and may name an index that is missing.
	serving := filepath.Join(f.dir, servingName)
	for _, content := range []string{"", "index-0009.v1\n", "index-0009.v1"} {
		require.NoError(t, c.Close())
		if replace(t, f.fs, serving, []byte(content)); content == "" {
			require.NoError(t, f.fs.Remove(serving))
		}
		c = f.ready()
		require.Equal(t, firstIndex.next(), c.serving.Load().number)
		requireDocument(t, c, "doc-7", documentOf("doc-7"))
		named, err := readServing(f.fs, f.dir)
		require.NoError(t, err)
		require.Equal(t, firstIndex.next(), named)
	}
}

// A crash during a takeover leaves a partly written SERVING. The next start removes it.
func TestPartlyWrittenServing(t *testing.T) {
	f := newFixture(t, vfs.NewMem(), string(filepath.Separator))
	f.put("a", documentOf("a"))
	require.NoError(t, f.ready().Close())
	temporary := filepath.Join(f.dir, servingName+".tmp")
	file, err := f.fs.Create(temporary)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	requireDocument(t, f.ready(), "a", documentOf("a"))
	_, err = f.fs.Stat(temporary)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// What an earlier run left, and cannot be removed, does not keep a collection from being served.
func TestLeftoversStay(t *testing.T) {
	f := newFixture(t, vfs.NewMem(), string(filepath.Separator))
	f.put("a", documentOf("a"))
	require.NoError(t, f.ready().Close())
	left := []string{
		filepath.Join(f.dir, indexNumber(7).name()+removedExtension),
		filepath.Join(f.dir, indexNumber(9).name()),
	}
	for _, dir := range left {
		require.NoError(t, vfs.MakeDir(f.fs, dir))
	}
	fsys := f.options.FS
	f.options.FS = vfs.NewFault(f.fs, func(op vfs.Op) error {
		if (op.Kind == vfs.OpRename || op.Kind == vfs.OpRemoveAll) && strings.Contains(op.Name, indexPrefix) {
			return syscall.EIO
		}
		return nil
	})
	c := f.ready()
	requireDocument(t, c, "a", documentOf("a"))
	require.NoError(t, c.Close())

	f.options.FS = fsys
	requireDocument(t, f.ready(), "a", documentOf("a"))
	for _, dir := range left {
		_, err := f.fs.Stat(dir)
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
}

// TestCompactedPlaces: documents whose places were changed by a compaction are found, also
// by an index that was built after it, and after the next compaction.
func TestCompactedPlaces(t *testing.T) {
	f := newFixture(t, vfs.OS, t.TempDir())
	f.putMany("doc", 300)
	f.seal()
	c := f.ready()
	for round := range 9 { // more than the generations that a place tells apart
		f.putMany("doc", 100)
		f.seal()
		_, err := maintain.Compact(t.Context(), f.queueDir, &maintain.CompactOptions{MaxDead: 0.01, DeleteOriginals: true})
		require.NoError(t, err)
		require.NoError(t, c.WaitFor(soon(t), f.put("last", documentOf("last"))))
		if round%3 == 1 {
			before := c.serving.Load().number
			require.NoError(t, RequestReindex(vfs.OS, f.dir))
			f.awaitIndex(c, before.next())
		}
		ids := [][]byte{[]byte("doc-7"), []byte("doc-150"), []byte("doc-299"), []byte("last")}
		_, answers, err := c.GetMany(nil, ids, docservice.MaxReplyBytes)
		require.NoError(t, err)
		for i, id := range ids {
			requireDocument(t, c, string(id), documentOf(string(id)))
			require.NoError(t, answers[i].Err)
			require.Equal(t, documentOf(string(id)), string(answers[i].Document))
		}
		compared, err := CompareIndex(t.Context(), f.dir, f.queueDir, f.options.Now(), CompareMemory, nil)
		require.NoError(t, err)
		require.Zero(t, compared.Differences(), compared.Examples)
		require.Empty(t, c.Status().Faults)
	}
}
