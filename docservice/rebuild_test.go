package docservice

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/lsm"
)

// indexFiles are the files of an index with an extension.
func (f *fixture) indexFiles(n indexNumber, extension string) (paths []string) {
	f.t.Helper()
	names, err := f.fs.List(n.path(f.dir))
	require.NoError(f.t, err)
	for _, name := range names {
		if filepath.Ext(name) == extension {
			paths = append(paths, filepath.Join(n.path(f.dir), name))
		}
	}
	return paths
}

// TestDamagedIndexIsMadeAnew: a wrong byte in a table makes some ids unavailable, and
// others are served, until an index made of the queue has taken its place.
func TestDamagedIndexIsMadeAnew(t *testing.T) {
	random := testseed.Rand(t)
	f := newMemFixture(t)
	last := f.putMany("doc", 3000)
	c := f.ready()
	require.NoError(t, c.serving.Load().index.Flush())
	require.NoError(t, c.Close())
	tables := f.indexFiles(firstIndex, ".table")
	require.Len(t, tables, 1)
	content, err := vfs.ReadFile(f.fs, tables[0])
	require.NoError(t, err)
	content[4096+random.IntN(len(content)/4)] ^= 1 << random.IntN(8) // in a block: of them most of it is made
	replace(t, f.fs, tables[0], content)

	c = f.open()
	failed := 0
	for i := range 3000 {
		id := []byte("doc-" + strconv.Itoa(i))
		document, err := c.Get(nil, id)
		if err != nil {
			require.ErrorIs(t, err, ErrUnavailable)
			failed++
			continue
		}
		require.Equal(t, documentOf(string(id)), string(document))
	}
	require.Positive(t, failed)
	waitFor(t, c, "the index was made anew", func(s Status) bool {
		return c.serving.Load().number == firstIndex+1 && s.Ready && len(s.Faults) == 0 && s.Successor == nil
	})
	require.NoError(t, c.WaitFor(soon(t), last))
	for i := range 3000 {
		id := "doc-" + strconv.Itoa(i)
		requireDocument(t, c, id, documentOf(id))
	}
	numbers, err := listIndexes(f.fs, f.dir)
	require.NoError(t, err)
	require.Equal(t, []indexNumber{firstIndex + 1}, numbers)
}

// TestIndexThatCannotBeOpened is set aside, and the queue is read from its beginning.
func TestIndexThatCannotBeOpened(t *testing.T) {
	f := newMemFixture(t)
	f.putMany("doc", 300)
	c := f.ready()
	require.NoError(t, c.serving.Load().index.Flush())
	require.NoError(t, c.Close())
	manifest := filepath.Join(firstIndex.path(f.dir), "MANIFEST")
	content, err := vfs.ReadFile(f.fs, manifest)
	require.NoError(t, err)
	content[len(content)/2] ^= 0x10
	replace(t, f.fs, manifest, content)
	_, err = lsm.Open(firstIndex.path(f.dir), &lsm.Options{FS: f.fs, ReadOnly: true})
	require.ErrorIs(t, err, lsm.ErrCorrupt)

	for range 2 { // the second time there is one aside already
		c = f.ready()
		requireDocument(t, c, "doc-7", documentOf("doc-7"))
		require.EqualValues(t, 300, c.Status().Applied)
		require.NoError(t, c.Close())
		_, err = f.fs.Stat(firstIndex.path(f.dir) + damagedExtension)
		require.NoError(t, err)
		replace(t, f.fs, manifest, content)
	}
}

// TestNothingIsAbsentBeforeTheEnd: an id that is looked up while the queue is being read
// to its end is there or unavailable, whatever comes in between.
func TestNothingIsAbsentBeforeTheEnd(t *testing.T) {
	f := newMemFixture(t)
	f.put("a", "document")
	require.NoError(t, f.writer.Close())
	for range 300 {
		g := newFixture(t, f.fs.(*vfs.Mem).CrashClone(vfs.KeepAll), string(filepath.Separator))
		c := g.open()
		for {
			_, err := c.Get(nil, []byte("a"))
			if err == nil {
				break
			}
			require.ErrorIs(t, err, ErrUnavailable)
		}
		require.NoError(t, c.Close())
	}
}
