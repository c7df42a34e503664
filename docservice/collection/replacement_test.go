package collection

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
)

// queueFiles writes a queue of sealed segments, each from a list of ids, and returns the
// files. The documents of an id differ only in the mark and segment, so that two queues
// have different documents of the same length for an id at one address.
func queueFiles(t *testing.T, mark string, segments ...[]string) map[string][]byte {
	t.Helper()
	f := newMemFixture(t)
	for i, ids := range segments {
		for _, id := range ids {
			_, err := f.queueWriter().Append([]byte(id), []byte(marked(id, mark, i+1)))
			require.NoError(t, err)
		}
		f.seal()
	}
	files := map[string][]byte{}
	for i := range segments {
		_, content := f.segment(queue.SegmentID(i + 1))
		files[sealedName(queue.SegmentID(i+1))] = content
	}
	return files
}

// marked returns the document of an id in a segment of a queue with a mark.
func marked(id, mark string, segment int) string {
	return fmt.Sprintf(`{"id":%q,"queue":%q,"segment":%d}`, id, mark, segment)
}

// bring copies files into the queue's directory, the named ones or all.
func (f *fixture) bring(files map[string][]byte, names ...string) {
	f.t.Helper()
	for name, content := range files {
		if len(names) == 0 || strings.Contains(strings.Join(names, " "), name) {
			path := filepath.Join(f.queueDir, name)
			replace(f.t, f.fs, path, content)
			durable, err := syncFile(f.fs, path)
			require.NoError(f.t, err)
			require.True(f.t, durable)
		}
	}
	require.NoError(f.t, f.fs.SyncDir(f.queueDir))
}

// moveAside moves the files of a queue to ReplacedDir, as docstore-sync does.
func (f *fixture) moveAside(files map[string][]byte) {
	f.t.Helper()
	dir := filepath.Join(f.queueDir, ReplacedDir)
	require.NoError(f.t, f.fs.MkdirAll(dir))
	for name := range files {
		require.NoError(f.t, f.fs.Rename(filepath.Join(f.queueDir, name), filepath.Join(dir, name)))
	}
	require.NoError(f.t, f.fs.SyncDir(dir))
}

// twoQueues returns two queues: in the second one "both" is written twice, first at the
// address where the first queue has it; only the second version is current.
func twoQueues(t *testing.T) (one, two map[string][]byte) {
	one = queueFiles(t, "one", []string{"both", "a-1", "a-2"}, []string{"a-3"}, []string{"a-4"})
	two = queueFiles(t, "two", []string{"both", "b-1", "b-2"}, []string{"b-3"}, []string{"both"})
	return one, two
}

const thirdSegment = "0000000003.seg"

func (f *fixture) requireSecondQueue(c *Collection) {
	f.t.Helper()
	waitFor(f.t, c, "the other queue is served", func(s Status) bool {
		_, err := c.Locate([]byte("b-1"))
		return s.Ready && s.Replacement == nil && err == nil
	})
	requireDocument(f.t, c, "both", marked("both", "two", 3))
	requireDocument(f.t, c, "b-1", marked("b-1", "two", 1))
	requireDocument(f.t, c, "b-3", marked("b-3", "two", 2))
	requireNone(f.t, c, "a-1", docservice.ErrNotFound)
	require.True(f.t, c.Status().Ready)
	require.Empty(f.t, c.Status().Faults)
}

// Another queue is copied over the served one. Missing documents are unavailable, and no
// document of the other queue is served until it is complete.
func TestAnotherQueueOverwritesTheOneServed(t *testing.T) {
	one, two := twoQueues(t)
	f := newMemFixture(t)
	f.bring(one)
	c := f.ready()
	require.NoError(t, c.Close())
	f.bring(two, "0000000001.seg", "0000000002.seg") // and segment 3 is still the first one's
	c = f.open()
	waitFor(t, c, "the other one is read", func(s Status) bool {
		return s.Replacement != nil && len(s.Replacement.Faults) == 1 && strings.Contains(s.Replacement.Faults[0].Reason, "forked")
	})
	requireNone(t, c, "both", docservice.ErrUnavailable) // not the other queue's document at its address
	requireNone(t, c, "a-3", docservice.ErrUnavailable)
	requireDocument(t, c, "a-4", marked("a-4", "one", 3))

	f.bring(two, thirdSegment)
	f.requireSecondQueue(c)
	waitFor(t, c, "the old index is removed", func(Status) bool {
		numbers, err := listIndexes(f.fs, f.dir)
		return err == nil && slices.Equal(numbers, []indexNumber{firstIndex.next()})
	})
	require.NoError(t, c.Close())
	c = f.ready()
	require.Zero(t, c.Status().Applied)
	f.requireSecondQueue(c)
}

// If the files of the old queue are kept, all documents stay available, also after a
// restart.
func TestQueueIsServedUntilAnotherHasBeenRead(t *testing.T) {
	one, two := twoQueues(t)
	f := newMemFixture(t)
	f.options.VerifyInterval = time.Millisecond
	f.options.Quarantine = true
	f.bring(one)
	c := f.ready()
	f.moveAside(one)
	f.bring(two, "0000000001.seg", thirdSegment) // the second has not arrived yet

	for round := range 2 {
		waitFor(t, c, "the other one is read", func(s Status) bool {
			return s.Ready && s.Replacement != nil && s.Replacement.TailedBytes > 0 &&
				c.serving.Load().queueDir == filepath.Join(f.queueDir, ReplacedDir)
		})
		for i, ids := range [][]string{{"both", "a-1", "a-2"}, {"a-3"}, {"a-4"}} {
			for _, id := range ids {
				requireDocument(t, c, id, marked(id, "one", i+1))
			}
		}
		requireNone(t, c, "b-1", docservice.ErrNotFound)
		assert.Empty(t, c.Status().Faults)
		if round == 0 {
			require.NoError(t, c.Close())
			c = f.open()
		}
	}
	f.bring(two, "0000000002.seg")
	f.requireSecondQueue(c)
	f.waitRemoved(filepath.Join(f.queueDir, ReplacedDir))
}

// The first queue returns, and the replacement is discarded; likewise for a third queue.
func TestReplacementIsDiscarded(t *testing.T) {
	one, two := twoQueues(t)
	f := newMemFixture(t)
	f.bring(one)
	c := f.ready()
	f.bring(two, "0000000001.seg")
	waitFor(t, c, "another has arrived", func(s Status) bool { return s.Replacement != nil })
	f.bring(one)
	waitFor(t, c, "it is discarded", func(s Status) bool { return s.Replacement == nil })
	requireDocument(t, c, "both", marked("both", "one", 1))
	require.True(t, c.Status().Ready)

	third := queueFiles(t, "three", []string{"c-1"}, []string{"c-2"}, []string{"c-3"})
	f.bring(third, "0000000001.seg")
	waitFor(t, c, "a third has arrived", func(s Status) bool { return s.Replacement != nil && s.Replacement.Queue != [16]byte{} })
	require.NoError(t, c.Close())
	f.bring(two) // instead of the third, while the daemon is down
	c = f.open()
	f.requireSecondQueue(c)
	requireNone(t, c, "c-1", docservice.ErrNotFound)
}

// Callers see no error when another queue takes over.
func TestTakeOverUnderLoad(t *testing.T) {
	one, two := twoQueues(t)
	f := newMemFixture(t)
	f.bring(one)
	c := f.ready()
	f.moveAside(one)

	var callers sync.WaitGroup
	var ended atomic.Bool
	right := map[string]bool{marked("both", "one", 1): true, marked("both", "two", 3): true}
	for range 3 {
		callers.Go(func() {
			for !ended.Load() {
				document, err := c.Get(nil, []byte("both"))
				if !errors.Is(err, docservice.ErrUnavailable) { // while the files are being moved
					assert.NoError(t, err)
					assert.True(t, right[string(document)], string(document))
				}
				_, answers, err := c.GetMany(nil, [][]byte{[]byte("both"), []byte("both")}, 1<<20)
				assert.NoError(t, err)
				for _, a := range answers {
					if !errors.Is(a.Err, docservice.ErrUnavailable) {
						assert.NoError(t, a.Err)
						assert.True(t, right[string(a.Document)], string(a.Document))
					}
				}
			}
		})
	}
	f.bring(two)
	f.requireSecondQueue(c)
	ended.Store(true)
	callers.Wait()
	require.Zero(t, c.Status().Gets.Failed)
}

// A scan in progress when another queue takes over fails: the rest would belong to the
// other queue.
func TestTakeOverWhileListing(t *testing.T) {
	var many []string
	for i := range 2 * scanWindowIDs {
		many = append(many, fmt.Sprintf("a-%04d", i))
	}
	one := queueFiles(t, "one", many)
	_, two := twoQueues(t)
	f := newMemFixture(t)
	f.bring(one)
	c := f.ready()
	before := c.serving.Load()
	err := c.Scan(t.Context(), docservice.ScanOptions{}, func(id []byte, _ Answer) error {
		if string(id) == "a-0000" {
			f.bring(two)
			f.requireSecondQueue(c)
			// The first queue is closed after the second one is served. Until then it is listed.
			require.Eventually(t, func() bool {
				_, err := before.queue.Document(nil, queue.Address{Segment: 1})
				return errors.Is(err, queue.ErrClosed)
			}, patience, time.Millisecond)
		}
		return nil
	})
	require.ErrorIs(t, err, docservice.ErrUnavailable)
}

// After a crash at any step of a replacement one of the two queues is served, and in the
// end the new one.
func TestCrashDuringReplacement(t *testing.T) {
	one, two := twoQueues(t)
	random := testseed.Rand(t)
	for k := int64(1); ; k++ {
		mem := vfs.NewMem()
		var writes atomic.Int64
		var armed, crashed atomic.Bool
		fs := vfs.NewFault(mem, func(op vfs.Op) error {
			if armed.Load() && op.Kind.Writes() && writes.Add(1) >= k {
				crashed.Store(true)
				return errors.New("crashed")
			}
			return nil
		})
		f := newFixture(t, fs, string(filepath.Separator))
		f.options.Quarantine = true
		f.bring(one)
		c := f.ready()
		f.moveAside(one)
		f.bring(two)
		armed.Store(true)
		served := func() bool {
			_, err := c.Locate([]byte("b-1"))
			return err == nil && !f.exists(filepath.Join(f.queueDir, ReplacedDir))
		}
		require.Eventually(t, func() bool { return crashed.Load() || served() }, patience, 100*time.Microsecond)
		clone := mem.CrashClone(vfs.KeepRandom(random.Uint64()))
		done := !crashed.Load()
		_ = c.Close() // it may fail with the disk

		after := newFixture(t, clone, string(filepath.Separator))
		d := after.open()
		document, err := d.Get(nil, []byte("both"))
		if err == nil { // an index that lost everything in the crash reads the other queue at once and serves its entries
			require.Contains(t, []string{marked("both", "one", 1), marked("both", "two", 1), marked("both", "two", 3)}, string(document))
		} else {
			require.ErrorIs(t, err, docservice.ErrUnavailable)
		}
		after.requireSecondQueue(d)
		require.NoError(t, d.Close())
		if done {
			require.Greater(t, k, int64(5), "steps were interrupted")
			return
		}
	}
}
