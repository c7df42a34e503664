package collection

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/lsm"
	"docstore/queue"
)

// indexFiles returns the files of an index with an extension.
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

// TestDamagedIndexIsRebuilt: a wrong byte in a table makes some ids unavailable, and others
// are served, until an index rebuilt from the queue has replaced it.
func TestDamagedIndexIsRebuilt(t *testing.T) {
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
	content[4096+random.IntN(len(content)/4)] ^= 1 << random.IntN(8) // in a block, as most bytes are
	replace(t, f.fs, tables[0], content)

	c = f.open()
	failed := 0
	for i := range 3000 {
		id := []byte("doc-" + strconv.Itoa(i))
		document, err := c.Get(nil, id)
		if err != nil {
			require.ErrorIs(t, err, docservice.ErrUnavailable)
			failed++
			continue
		}
		require.Equal(t, documentOf(string(id)), string(document))
	}
	require.Positive(t, failed)
	waitFor(t, c, "the index was rebuilt", func(s Status) bool {
		return c.serving.Load().number == firstIndex.next() && s.Ready && len(s.Faults) == 0 && s.Replacement == nil
	})
	require.NoError(t, c.WaitFor(soon(t), last))
	for i := range 3000 {
		id := "doc-" + strconv.Itoa(i)
		requireDocument(t, c, id, documentOf(id))
	}
	waitFor(t, c, "the damaged index is removed", func(Status) bool {
		numbers, err := listIndexes(f.fs, f.dir)
		return err == nil && slices.Equal(numbers, []indexNumber{firstIndex.next()})
	})
}

// TestRebuildAfterAFullDisk: attempts to rebuild a damaged index while the disk is full do not delay
// the rebuild for which there is space.
func TestRebuildAfterAFullDisk(t *testing.T) {
	f := newMemFixture(t)
	last := f.putMany("doc", 300)
	full := false
	f.options.FS = vfs.NewFault(f.fs, func(op vfs.Op) error {
		if op.Kind.Writes() && full && strings.HasPrefix(op.Name, firstIndex.next().path(f.dir)) {
			return syscall.ENOSPC
		}
		return nil
	})
	f.options.RetryInterval = time.Hour // no replacement is built yet
	c := f.ready()
	c.serving.Load().recordFault(indexError(errors.New("damage")), queue.Address{})
	full = true
	for range 3 {
		require.ErrorIs(t, c.advanceReplacement(), syscall.ENOSPC)
	}
	full = false
	require.NoError(t, c.advanceReplacement())
	require.NotNil(t, c.next())
	require.NoError(t, c.next().health.waitUntil(soon(t), func() bool { return c.next().health.gap.Load() == nil }))
	require.NoError(t, c.advanceReplacement())
	f.requireRebuilt(c, firstIndex.next(), last, 300)
}

// TestIndexThatCannotBeOpened: the index is renamed, and the queue is read from its
// beginning.
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

	for range 2 { // the second time one was renamed before
		c = f.ready()
		requireDocument(t, c, "doc-7", documentOf("doc-7"))
		require.EqualValues(t, 300, c.Status().Applied)
		require.NoError(t, c.Close())
		_, err = f.fs.Stat(firstIndex.path(f.dir) + damagedExtension)
		require.NoError(t, err)
		replace(t, f.fs, manifest, content)
	}
}

// TestNotFoundOnlyAfterTheEnd: an id that is looked up while the queue is read to its end
// is found or unavailable, in any interleaving.
func TestNotFoundOnlyAfterTheEnd(t *testing.T) {
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
			require.ErrorIs(t, err, docservice.ErrUnavailable)
		}
		require.NoError(t, c.Close())
	}
}

// requireRebuilt waits until an index with the number serves all documents again.
func (f *fixture) requireRebuilt(c *Collection, number indexNumber, last queue.Address, documents int) {
	f.t.Helper()
	waitFor(f.t, c, "the index was rebuilt", func(s Status) bool {
		return c.serving.Load().number == number && s.Ready && len(s.Faults) == 0 && s.Replacement == nil
	})
	require.NoError(f.t, c.WaitFor(soon(f.t), last))
	for i := range documents {
		id := "doc-" + strconv.Itoa(i)
		requireDocument(f.t, c, id, documentOf(id))
	}
	requireNone(f.t, c, "none", docservice.ErrNotFound)
}

// TestTruncatedTableOfAServedIndex truncates a table of an open collection. A lookup in the
// missing part is unavailable, with one fault that names the table, until a rebuilt index
// serves everything.
func TestTruncatedTableOfAServedIndex(t *testing.T) {
	const documents = 3000
	f := newFixture(t, vfs.OS, t.TempDir())
	last := f.putMany("doc", documents)
	f.options.RetryInterval = time.Hour // no replacement is built yet
	c := f.ready()
	require.NoError(t, c.serving.Load().index.Flush())
	tables := f.indexFiles(firstIndex, ".table")
	require.Len(t, tables, 1)
	require.NoError(t, os.Truncate(tables[0], 0))

	ids := make([][]byte, documents)
	for i := range ids {
		ids[i] = []byte("doc-" + strconv.Itoa(i))
		if _, err := c.Get(nil, ids[i]); err != nil {
			require.ErrorIs(t, err, docservice.ErrUnavailable)
		}
	}
	_, answers, err := c.GetMany(nil, ids, 1<<30)
	require.NoError(t, err)
	for i, answer := range answers {
		require.ErrorIs(t, answer.Err, docservice.ErrUnavailable, "%s", ids[i])
	}
	_, err = c.Locate(ids[0])
	require.ErrorIs(t, err, docservice.ErrUnavailable)
	requireNone(t, c, "none", docservice.ErrUnavailable)
	err = c.Scan(t.Context(), docservice.ScanOptions{}, func([]byte, Answer) error { return nil })
	require.ErrorIs(t, err, docservice.ErrUnavailable)
	status := c.Status()
	require.False(t, status.Ready)
	require.Len(t, status.Faults, 1)
	require.Equal(t, tables[0], status.Faults[0].Path)
	require.Zero(t, status.Gets.Failed)

	require.NoError(t, c.advanceReplacement())
	require.NoError(t, c.next().health.waitUntil(soon(t), func() bool { return c.next().health.gap.Load() == nil }))
	require.NoError(t, c.advanceReplacement())
	f.requireRebuilt(c, firstIndex.next(), last, documents)
}

// TestMissingTableAtTheStart: the index is renamed and rebuilt, with a fault until then.
func TestMissingTableAtTheStart(t *testing.T) {
	f := newMemFixture(t)
	last := f.putMany("doc", 300)
	c := f.ready()
	require.NoError(t, c.serving.Load().index.Flush())
	require.NoError(t, c.Close())
	table := f.indexFiles(firstIndex, ".table")[0]
	require.NoError(t, f.fs.Remove(table))
	away := f.queueDir + "-away"
	require.NoError(t, f.fs.Rename(f.queueDir, away)) // nothing can be read yet
	require.NoError(t, f.fs.MkdirAll(f.queueDir))

	c = f.open()
	status := c.Status()
	require.False(t, status.Ready)
	require.Len(t, status.Faults, 1)
	require.Equal(t, firstIndex.path(f.dir)+damagedExtension, status.Faults[0].Path)
	require.Contains(t, status.Faults[0].Reason, filepath.Base(table))
	requireNone(t, c, "doc-7", docservice.ErrUnavailable)
	names, err := f.fs.List(away)
	require.NoError(t, err)
	for _, name := range names {
		require.NoError(t, f.fs.Rename(filepath.Join(away, name), filepath.Join(f.queueDir, name)))
	}
	f.requireRebuilt(c, firstIndex, last, 300)
}

// TestRebuildIsResumedByTheNextStart: if a restart interrupts a rebuild, it is resumed even
// if the damage is not found again.
func TestRebuildIsResumedByTheNextStart(t *testing.T) {
	f := newMemFixture(t)
	last := f.putMany("doc", 300)
	f.options.RetryInterval = time.Hour
	c := f.ready()
	c.serving.Load().recordFault(indexError(errors.New("damage")), queue.Address{})
	require.NoError(t, c.advanceReplacement())
	require.NotNil(t, c.next())
	require.NoError(t, c.Close())

	f.options.RetryInterval = time.Millisecond
	c = f.open()
	f.requireRebuilt(c, firstIndex.next(), last, 300)
}

// TestRebuildFromAShorterQueue: the end of an open segment was lost, with power, which the index has
// read. An index that is rebuilt from what is left would forget later versions and deletes, so it takes
// over when that is here again; and without it only if the history of the queue has changed.
func TestRebuildFromAShorterQueue(t *testing.T) {
	for name, test := range map[string]struct {
		published, head, forked bool // head names the lost entries
		waits                   bool
	}{
		"increments":                    {published: true, waits: true},
		"increments, lost for long":     {published: true, forked: true, waits: true},
		"a copy":                        {waits: true},
		"an older copy":                 {forked: true},
		"a copy of what the head names": {head: true, forked: true, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newMemFixture(t)
			f.options.Published = test.published
			f.put("changed", "old")
			open := filepath.Join(f.queueDir, queue.OpenSegmentName(1))
			early, err := vfs.ReadFile(f.fs, open)
			require.NoError(t, err)
			head, err := queue.ReadHead(f.fs, f.queueDir)
			require.NoError(t, err)
			f.put("changed", "new")
			last := f.putMany("doc", 10)
			late, err := vfs.ReadFile(f.fs, open)
			require.NoError(t, err)
			c := f.ready()
			end := c.Status().Position
			require.NoError(t, c.Close())

			replace(t, f.fs, open, early)
			if test.head {
				head.End = end
			}
			require.NoError(t, queue.WriteHead(f.fs, f.queueDir, head))
			f.options.RetryInterval = time.Hour
			c = f.open()
			damaged := c.serving.Load()
			damaged.recordFault(indexError(errors.New("damage")), queue.Address{})
			require.NoError(t, c.advanceReplacement())
			next := c.next()
			require.NotNil(t, next)
			require.NoError(t, next.health.waitUntil(soon(t), func() bool { return next.health.mu.tail.current }))
			if test.forked {
				damaged.follower.tailStopped(queue.ErrForked)
			}
			err = c.takeOver(next)
			require.Equal(t, test.waits, c.serving.Load() == damaged)
			if !test.waits {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, errEndsEarly)
				requireNone(t, c, "changed", docservice.ErrUnavailable)
				replace(t, f.fs, open, late)
				require.NoError(t, next.health.waitUntil(soon(t), func() bool { return next.health.includes(last) && next.health.gap.Load() == nil }))
				require.NoError(t, c.advanceReplacement())
				f.requireRebuilt(c, firstIndex.next(), last, 10)
			}
		})
	}
}
