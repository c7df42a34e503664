package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

var errCrash = errors.New("crash")

// history is what a run of the workload below has done.
type history struct {
	items   []item
	flushed int      // so many of them were durable when the run ended
	cursors []string // as of each item
}

// work appends, flushes and seals until something fails.
func (h *history) work(w *Writer, count int) error {
	for range count {
		n := len(h.items)
		it := item{id: fmt.Sprint("id-", n%7), document: posting(n)[:40+n%60]}
		var err error
		if it.deleted = n%11 == 10; it.deleted {
			it.document = ""
			it.at, err = w.Delete([]byte(it.id))
		} else {
			it.at, err = w.Append([]byte(it.id), []byte(it.document))
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
	if err := w.Close(); err != nil {
		return err
	}
	h.flushed = len(h.items)
	return nil
}

func crashOptions(fsys vfs.FS) *WriterOptions {
	opts := testOptions(fsys)
	opts.BlockBytes, opts.SegmentBytes = 300, 1500
	return opts
}

// countWrites is how many operations that write a run takes.
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

// crashAfter is a file system that stops before its k-th operation that writes.
func crashAfter(fsys vfs.FS, k int) vfs.FS {
	var writes int
	return vfs.NewFault(fsys, func(op vfs.Op) error {
		if op.Kind.Writes() {
			writes++
		}
		if writes >= k {
			return errCrash
		}
		return nil
	})
}

var crashKeeps = map[string]vfs.Keep{
	"synced": vfs.KeepSynced, "all": vfs.KeepAll,
	"random-1": vfs.KeepRandom(1), "random-2": vfs.KeepRandom(2), "random-3": vfs.KeepRandom(3),
}

// TestCrashAtEveryOperation stops the writer before each of its operations, cuts
// the power, and looks at what the next one finds: everything flushed, and of
// the rest the beginning.
func TestCrashAtEveryOperation(t *testing.T) {
	const count = 45
	writes := countWrites(func(fsys vfs.FS) {
		w, err := OpenWriter(queueDir, crashOptions(fsys))
		require.NoError(t, err)
		require.NoError(t, new(history).work(w, count))
	})
	require.Greater(t, writes, 50)
	for k := 1; k <= writes; k++ {
		mem := vfs.NewMem()
		var h history
		w, err := OpenWriter(queueDir, crashOptions(crashAfter(mem, k)))
		if err == nil {
			require.Error(t, h.work(w, count))
			require.Error(t, w.Close())
		}
		// What readers of the files, which rsync is, could see at that moment.
		seen := 0
		if r, err := OpenReader(queueDir, &ReaderOptions{FS: mem.CrashClone(vfs.KeepAll)}); err == nil {
			seen = len(scan(t, r, Position{}))
			r.Close()
		}
		for name, keep := range crashKeeps {
			t.Run(fmt.Sprintf("op=%d/keep=%s", k, name), func(t *testing.T) {
				recovered := mem.CrashClone(keep)
				requireRecovery(t, recovered, h, seen)
			})
		}
	}
}

// TestCrashWhileFlushesRunBesideAppends: blocks wait behind marks that are not
// written yet when the power goes. What a Flush has covered is there, and the cursor
// is that of the last entry.
func TestCrashWhileFlushesRunBesideAppends(t *testing.T) {
	const count = 60
	for k := 1; k < 120; k += 2 {
		mem := vfs.NewMem()
		opts := crashOptions(crashAfter(mem, k))
		opts.Codec = "s2"
		w, err := OpenWriter(queueDir, opts)
		if err != nil {
			continue
		}
		var items []item
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
			it := item{id: fmt.Sprint(n), document: posting(n)}
			r := Record{ID: []byte(it.id), Document: []byte(it.document), Cursor: []byte(it.id)}
			if it.at, err = w.Put(r); err != nil {
				break
			}
			items = append(items, it)
			appended.Store(int64(len(items)))
		}
		covered := <-flushed
		w.Close()
		for name, keep := range crashKeeps {
			t.Run(fmt.Sprintf("op=%d/keep=%s", k, name), func(t *testing.T) {
				recovered := mem.CrashClone(keep)
				again, err := OpenWriter(queueDir, crashOptions(recovered))
				require.NoError(t, err)
				defer again.Close()
				r := openReader(t, recovered)
				got := scan(t, r, Position{})
				require.GreaterOrEqual(t, len(got), covered, "flushed entries are lost")
				requireItems(t, r, items[:len(got)])
				if len(got) > 0 {
					require.Equal(t, items[len(got)-1].id, string(again.Cursor()))
				}
				requireSound(t, recovered)
			})
		}
	}
}

// requireRecovery opens the queue that a crash has left, goes on with it and
// checks that nothing is lost that was flushed or seen.
func requireRecovery(t *testing.T, fsys vfs.FS, h history, seen int) {
	w, err := OpenWriter(queueDir, crashOptions(fsys))
	require.NoError(t, err)
	defer w.Close()
	r := openReader(t, fsys)
	got := scan(t, r, Position{})
	require.GreaterOrEqual(t, len(got), h.flushed, "flushed entries are lost")
	require.GreaterOrEqual(t, len(got), seen, "readers are ahead")
	require.LessOrEqual(t, len(got), len(h.items))
	h.items = slices.Clip(h.items[:len(got)]) // the history is shared between cases
	h.cursors = slices.Clip(h.cursors[:len(got)])
	requireItems(t, r, h.items)
	if len(got) > 0 {
		require.Equal(t, h.cursors[len(got)-1], string(w.Cursor()))
	} else {
		require.Empty(t, w.Cursor())
	}
	requireSound(t, fsys)

	var last SegmentID
	if len(got) > 0 {
		last = got[len(got)-1].at.Segment
	}
	require.NoError(t, h.work(w, 25))
	require.Greater(t, h.items[len(got)].at.Segment, last, "a segment left open was appended to")
	requireItems(t, r, h.items)
	requireSound(t, fsys)
}

// TestCrashInRecovery cuts the power again while the queue is being opened.
func TestCrashInRecovery(t *testing.T) {
	mem := vfs.NewMem()
	var h history
	w, err := OpenWriter(queueDir, crashOptions(crashAfter(mem, 20)))
	require.NoError(t, err)
	require.Error(t, h.work(w, 60))
	require.Error(t, w.Close())
	for name, keep := range crashKeeps {
		for k := 1; ; k++ {
			again := mem.CrashClone(keep)
			w, err := OpenWriter(queueDir, crashOptions(crashAfter(again, k)))
			if err == nil {
				require.Greater(t, k, 4)
				require.NoError(t, w.Close())
				break
			}
			for nameAgain, keepAgain := range crashKeeps {
				t.Run(fmt.Sprintf("keep=%s/op=%d/keep=%s", name, k, nameAgain), func(t *testing.T) {
					requireRecovery(t, again.CrashClone(keepAgain), h, 0)
				})
			}
		}
	}
}

// TestFaultAtEveryOperation lets single operations fail: the writer says so at
// once, stays with it, gives up its lock, and the next one finds everything.
func TestFaultAtEveryOperation(t *testing.T) {
	for k := int64(1); ; k++ {
		mem := vfs.NewMem()
		failed := false
		fsys := vfs.NewFault(mem, func(op vfs.Op) error {
			// What reads only or closes may fail unnoticed.
			if op.N == k && op.Kind.Writes() {
				failed = true
				return &vfs.ShortWriteError{Bytes: op.Bytes / 2, Err: errCrash}
			}
			return nil
		})
		var h history
		w, err := OpenWriter(queueDir, crashOptions(fsys))
		if err == nil {
			err = h.work(w, 60)
			if again := w.Flush(); failed && !errors.Is(again, ErrClosed) {
				require.ErrorIs(t, again, errCrash)
				_, again = w.Append([]byte("id"), nil)
				require.ErrorIs(t, again, errCrash)
			}
			require.Equal(t, err != nil, w.Close() != nil)
		}
		if !failed {
			if err == nil && k > fsys.Ops() {
				break
			}
			continue
		}
		require.ErrorIs(t, err, errCrash, "operation %d", k)
		t.Run(fmt.Sprint("op=", k), func(t *testing.T) { requireRecovery(t, mem, h, 0) })
	}
}

// TestUnfinishedBlockIsCutAway leaves each possible part of a block behind.
func TestUnfinishedBlockIsCutAway(t *testing.T) {
	mem := newMem(t)
	w := openWriter(t, testOptions(mem))
	var h history
	require.NoError(t, h.workOpen(w, 8))
	content, err := vfs.ReadFile(mem, segmentPath(queueDir, 1, openSuffix))
	require.NoError(t, err)
	r := openReader(t, mem)
	committed := r.End().Next.Block
	for cut := int(committed); cut <= len(content); cut++ {
		again := memWith(t, map[string][]byte{"0000000001.open": content[:cut]})
		requireRecovery(t, again, h, h.flushed)
	}
}

// workOpen appends and flushes, and leaves the first segment open.
func (h *history) workOpen(w *Writer, count int) error {
	for range count {
		n := len(h.items)
		it := item{id: fmt.Sprint("id-", n), document: posting(n)}
		at, err := w.Append([]byte(it.id), []byte(it.document))
		if err != nil {
			return err
		}
		it.at = at
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

// memWith is a file system whose queue has the files.
func memWith(t testing.TB, files map[string][]byte) *vfs.Mem {
	mem := newMem(t)
	for name, content := range files {
		require.NoError(t, vfs.WriteFileAtomic(mem, queueDir+"/"+name, content))
	}
	return mem
}

// TestDamageBeforeAMarkIsNoCrash: opening for writing refuses and changes
// nothing.
func TestDamageBeforeAMarkIsNoCrash(t *testing.T) {
	mem := newMem(t)
	w := openWriter(t, testOptions(mem))
	var h history
	require.NoError(t, h.workOpen(w, 10))
	name := segmentPath(queueDir, 1, openSuffix)
	content, err := vfs.ReadFile(mem, name)
	require.NoError(t, err)
	content[headerBytes+40] ^= 1
	again := memWith(t, map[string][]byte{"0000000001.open": content})
	_, err = OpenWriter(queueDir, crashOptions(again))
	var corruption *CorruptionError
	require.ErrorAs(t, err, &corruption)
	require.Equal(t, name, corruption.Path)
	require.EqualValues(t, headerBytes, corruption.Offset)
	after, err := vfs.ReadFile(again, name)
	require.NoError(t, err)
	require.Equal(t, content, after)
	lock, err := again.Lock(queueDir+"/"+lockName, "test")
	require.NoError(t, err, "the lock was not given up")
	require.NoError(t, lock.Close())

	report, err := Check(context.Background(), queueDir, &CheckOptions{FS: again})
	require.NoError(t, err)
	require.NotEmpty(t, report.Damage)
}
