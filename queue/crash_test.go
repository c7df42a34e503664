package queue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
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

// history is the result of a run of the workload below.
type history struct {
	start   int // of the ids, to make runs different
	items   []queuetest.Item
	flushed int      // number of items that were durable at the end
	cursors []string // by item
}

// work appends, flushes and seals until a call fails, and closes.
func (h *history) work(w *queue.Writer, count int) error {
	if err := h.append(w, count); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	h.flushed = len(h.items)
	return nil
}

func (h *history) append(w *queue.Writer, count int) error {
	for range count {
		n := len(h.items)
		it := queuetest.Item{ID: fmt.Sprint("id-", n%7), Document: queuetest.Posting(n)[:40+(h.start+n*(1+h.start))%60]}
		var err error
		if it.Deleted = n%11 == 10; it.Deleted {
			it.Document = ""
			it.At, err = w.Delete([]byte(it.ID))
		} else {
			it.At, err = w.Append([]byte(it.ID), []byte(it.Document))
		}
		if err != nil {
			return err
		}
		h.items = append(h.items, it)
		h.cursors = append(h.cursors, fmt.Sprint("cursor-", n))
		w.SetCursor([]byte(h.cursors[n]))
		switch {
		case n%19 == 18:
			err = w.Seal()
		case n%5 == 4:
			err = w.Flush()
		default:
			continue
		}
		if err != nil {
			return err
		}
		h.flushed = len(h.items)
	}
	return nil
}

func crashOptions(fsys vfs.FS) *queue.WriterOptions {
	opts := queuetest.Options(fsys)
	opts.BlockBytes, opts.SegmentBytes = 300, 1500
	var calls atomic.Int64
	opts.Now = func() time.Time { // each Flush writes the head
		return queuetest.Start.Add(time.Duration(calls.Add(1)) * time.Second)
	}
	return opts
}

// countWrites returns the number of writing operations of a run.
func countWrites(run func(vfs.FS)) int {
	var writes int
	run(func() vfs.FS {
		mem := vfs.NewMem()
		return vfs.NewFault(mem, func(op vfs.Op) error {
			if op.Kind.Writes() {
				writes++
			}
			return nil
		})
	}())
	return writes
}

// TestCrashAtEveryOperation stops the writer before each of its operations and cuts the
// power. The next writer finds everything that was flushed and a prefix of the rest.
func TestCrashAtEveryOperation(t *testing.T) {
	random, tally := testseed.Rand(t), crashtest.NewTally(t, "crashes")
	for range crashtest.Share(1, 25) {
		count, start := 45, random.IntN(100)
		writes := countWrites(func(fsys vfs.FS) {
			w, err := queue.OpenWriter(queuetest.Dir, crashOptions(fsys))
			require.NoError(t, err)
			require.NoError(t, (&history{start: start}).work(w, count))
		})
		require.Greater(t, writes, 50)
		for k := 1; k <= writes; k++ {
			mem := vfs.NewMem()
			h := history{start: start}
			w, err := queue.OpenWriter(queuetest.Dir, crashOptions(queuetest.CrashAfter(mem, k)))
			if err == nil {
				require.Error(t, h.work(w, count))
				require.Error(t, w.Close())
			}
			// The files as readers, rsync for example, could see them at that moment.
			seen := 0
			if r, err := queue.OpenReader(queuetest.Dir, &queue.ReaderOptions{FS: mem.CrashClone(vfs.KeepAll)}); err == nil {
				seen = len(queuetest.Scan(t, r, queue.Position{}))
				r.Close()
			}
			for _, way := range crashtest.Ways(random) {
				tally.Case()
				when := fmt.Sprintf("before operation %d, %s", k, way.Name)
				requireRecovery(t, mem.CrashClone(way.Keep), h, seen, when)
			}
		}
	}
}

// TestCrashDuringConcurrentFlushes: at the power loss some blocks wait for commit marks
// that have yet to be written. Entries covered by a Flush exist, and the cursor is that
// of the last entry.
func TestCrashDuringConcurrentFlushes(t *testing.T) {
	const count = 60
	random, tally := testseed.Rand(t), crashtest.NewTally(t, "crashes")
	for k := 1; k < 120; k += crashtest.Share(2, 1) {
		mem := vfs.NewMem()
		opts := crashOptions(queuetest.CrashAfter(mem, k))
		opts.Codec = "s2"
		w, err := queue.OpenWriter(queuetest.Dir, opts)
		if err != nil {
			continue
		}
		var items []queuetest.Item
		var appended atomic.Int64
		flushed := make(chan int)
		go func() {
			covered := 0
			for {
				n := int(appended.Load())
				if w.Flush() != nil {
					break
				}
				if covered = n; covered == count {
					break
				}
			}
			flushed <- covered
		}()
		for n := range count {
			it := queuetest.Item{ID: fmt.Sprint(n), Document: queuetest.Posting(n)}
			r := queue.Record{ID: []byte(it.ID), Document: []byte(it.Document), Cursor: []byte(it.ID)}
			if it.At, err = w.Put(r); err != nil {
				break
			}
			items = append(items, it)
			appended.Store(int64(len(items)))
		}
		covered := <-flushed
		w.Close()
		for _, way := range crashtest.Ways(random) {
			tally.Case()
			when := fmt.Sprintf("before operation %d, %s", k, way.Name)
			recovered := mem.CrashClone(way.Keep)
			again, err := queue.OpenWriter(queuetest.Dir, crashOptions(recovered))
			require.NoError(t, err, when)
			r := queuetest.OpenReader(t, recovered)
			got := queuetest.Scan(t, r, queue.Position{})
			require.GreaterOrEqual(t, len(got), covered, "flushed entries are lost: %s", when)
			queuetest.RequireItems(t, r, items[:len(got)])
			if len(got) > 0 {
				require.Equal(t, items[len(got)-1].ID, string(again.Cursor()), when)
			}
			queuetest.RequireSound(t, recovered)
			require.NoError(t, again.Close())
		}
	}
}

// requireRecovery opens the queue after a crash, continues it, and checks that no flushed
// or seen entry is lost.
func requireRecovery(t *testing.T, fsys vfs.FS, h history, seen int, when string) {
	t.Helper()
	w, err := queue.OpenWriter(queuetest.Dir, crashOptions(fsys))
	require.NoError(t, err, when)
	defer w.Close()
	r, err := queue.OpenReader(queuetest.Dir, &queue.ReaderOptions{FS: fsys})
	require.NoError(t, err, when)
	defer r.Close()
	got := queuetest.Scan(t, r, queue.Position{})
	require.GreaterOrEqual(t, len(got), h.flushed, "flushed entries are lost: %s", when)
	require.GreaterOrEqual(t, len(got), seen, "readers are ahead: %s", when)
	require.LessOrEqual(t, len(got), len(h.items), when)
	h.items = slices.Clip(h.items[:len(got)]) // the history is shared between cases
	h.cursors = slices.Clip(h.cursors[:len(got)])
	queuetest.RequireItems(t, r, h.items)
	if len(got) > 0 {
		require.Equal(t, h.cursors[len(got)-1], string(w.Cursor()), when)
	} else {
		require.Empty(t, w.Cursor(), when)
	}
	queuetest.RequireSound(t, fsys)

	var last queue.SegmentID
	if len(got) > 0 {
		last = got[len(got)-1].At.Segment
	}
	require.NoError(t, h.work(w, 25))
	require.Greater(t, h.items[len(got)].At.Segment, last, "a segment left open was appended to")
	queuetest.RequireItems(t, r, h.items)
	queuetest.RequireSound(t, fsys)
}

// TestCrashInRecovery cuts the power again while the queue is being opened.
func TestCrashInRecovery(t *testing.T) {
	random, tally := testseed.Rand(t), crashtest.NewTally(t, "crashes")
	for range crashtest.Share(1, 20) {
		mem := vfs.NewMem()
		var h history
		w, err := queue.OpenWriter(queuetest.Dir, crashOptions(queuetest.CrashAfter(mem, 20+random.IntN(30))))
		require.NoError(t, err)
		require.Error(t, h.work(w, 60))
		require.Error(t, w.Close())
		for _, way := range crashtest.Ways(random) {
			for k := 1; ; k++ {
				again := mem.CrashClone(way.Keep)
				w, err := queue.OpenWriter(queuetest.Dir, crashOptions(queuetest.CrashAfter(again, k)))
				if err == nil {
					require.Greater(t, k, 1)
					require.NoError(t, w.Close())
					break
				}
				for _, wayAgain := range crashtest.Ways(random) {
					tally.Case()
					when := fmt.Sprintf("%s, then before operation %d, %s", way.Name, k, wayAgain.Name)
					requireRecovery(t, again.CrashClone(wayAgain.Keep), h, 0, when)
				}
			}
		}
	}
}

// TestFaultAtEveryOperation fails every operation in every way: the writer reports the
// error at once and from then on, and releases its lock. After the disk is healed the
// next writer finds everything and continues, and then the power is cut.
func TestFaultAtEveryOperation(t *testing.T) {
	random := testseed.Rand(t)
	faults, crashes := crashtest.NewTally(t, "faults"), crashtest.NewTally(t, "crashes")
	for range crashtest.Share(1, 12) {
		start := random.IntN(100)
		for _, failure := range crashtest.Failures() {
			for k := int64(1); ; k++ {
				mem := vfs.NewMem()
				h := history{start: start}
				disk := failure.At(k, mem)
				w, err := queue.OpenWriter(queuetest.Dir, crashOptions(disk))
				if err == nil {
					if err = h.append(w, 45); err != nil {
						require.ErrorIs(t, w.Flush(), failure.Err)
						_, again := w.Append([]byte("id"), nil)
						require.ErrorIs(t, again, failure.Err)
						require.ErrorIs(t, w.Close(), failure.Err)
					} else if err = w.Close(); err == nil {
						h.flushed = len(h.items)
					}
				}
				disk.Heal()
				if disk.Failed() == 0 {
					require.NoError(t, err)
					break
				}
				faults.Case()
				when := fmt.Sprintf("%s at %d", failure.Name, k)
				if err != nil {
					require.ErrorIs(t, err, failure.Err, when)
				} else { // the failed read was not needed
					require.False(t, disk.FailedToWrite(), "%s was not reported", when)
				}
				requireContinues(t, mem, h, random, crashes, when)
			}
		}
	}
}

// requireContinues recovers a queue whose disk was healed, continues it, and cuts the
// power.
func requireContinues(t *testing.T, mem *vfs.Mem, h history, random *rand.Rand, crashes *crashtest.Tally, when string) {
	t.Helper()
	w, err := queue.OpenWriter(queuetest.Dir, crashOptions(mem))
	require.NoError(t, err, when)
	defer w.Close()
	r, err := queue.OpenReader(queuetest.Dir, &queue.ReaderOptions{FS: mem})
	require.NoError(t, err, when)
	defer r.Close()
	got := queuetest.Scan(t, r, queue.Position{})
	require.GreaterOrEqual(t, len(got), h.flushed, "flushed entries are lost: %s", when)
	require.LessOrEqual(t, len(got), len(h.items), when)
	h.items, h.cursors, h.flushed = slices.Clip(h.items[:len(got)]), slices.Clip(h.cursors[:len(got)]), len(got)
	require.NoError(t, h.append(w, 7), when)
	way := crashtest.Ways(random)[random.IntN(5)]
	crashes.Case()
	requireRecovery(t, mem.CrashClone(way.Keep), h, 0, when+", healed, "+way.Name)
}

// TestUnfinishedBlockIsCutAway cuts the last block after each of its bytes.
func TestUnfinishedBlockIsCutAway(t *testing.T) {
	mem := queuetest.NewMem(t)
	w := queuetest.OpenWriter(t, queuetest.Options(mem))
	var h history
	require.NoError(t, h.workOpen(w, 8))
	content, err := vfs.ReadFile(mem, segment.Path(queuetest.Dir, 1, segment.OpenSuffix))
	require.NoError(t, err)
	r := queuetest.OpenReader(t, mem)
	committed := r.End().Next.Block
	for cut := int(committed); cut <= len(content); cut++ {
		again := queuetest.MemWith(t, map[string][]byte{"0000000001.open": content[:cut]})
		requireRecovery(t, again, h, h.flushed, fmt.Sprint("cut at ", cut))
	}
}

// workOpen appends and flushes, and leaves the first segment open.
func (h *history) workOpen(w *queue.Writer, count int) error {
	for range count {
		n := len(h.items)
		it := queuetest.Item{ID: fmt.Sprint("id-", n), Document: queuetest.Posting(n)}
		at, err := w.Append([]byte(it.ID), []byte(it.Document))
		if err != nil {
			return err
		}
		it.At = at
		h.items = append(h.items, it)
		h.cursors = append(h.cursors, fmt.Sprint("cursor-", n))
		w.SetCursor([]byte(h.cursors[n]))
		if n%5 == 4 {
			if err := w.Flush(); err != nil {
				return err
			}
			h.flushed = len(h.items)
		}
	}
	return nil
}

// TestDamageBeforeMarkIsRefused: OpenWriter refuses damage that no crash can cause, and
// changes nothing.
func TestDamageBeforeMarkIsRefused(t *testing.T) {
	mem := queuetest.NewMem(t)
	w := queuetest.OpenWriter(t, queuetest.Options(mem))
	var h history
	require.NoError(t, h.workOpen(w, 10))
	name := segment.Path(queuetest.Dir, 1, segment.OpenSuffix)
	content, err := vfs.ReadFile(mem, name)
	require.NoError(t, err)
	content[segment.HeaderBytes+40] ^= 1
	again := queuetest.MemWith(t, map[string][]byte{"0000000001.open": content})
	_, err = queue.OpenWriter(queuetest.Dir, crashOptions(again))
	var corruption *queue.CorruptionError
	require.ErrorAs(t, err, &corruption)
	require.Equal(t, name, corruption.Path)
	require.EqualValues(t, segment.HeaderBytes, corruption.Offset)
	after, err := vfs.ReadFile(again, name)
	require.NoError(t, err)
	require.Equal(t, content, after)
	lock, err := again.Lock(queuetest.Dir+"/"+segment.LockName, "test")
	require.NoError(t, err, "the lock was not released")
	require.NoError(t, lock.Close())

	report, err := maintain.Check(context.Background(), queuetest.Dir, &maintain.CheckOptions{FS: again})
	require.NoError(t, err)
	require.NotEmpty(t, report.Damage)
}
