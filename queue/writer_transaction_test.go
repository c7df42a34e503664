package queue_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/internal/queuetest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The entries of the test: some were flushed before the transaction, and some follow it.
const (
	entriesBefore = 5
	entriesOfOne  = 40 // several blocks
)

// appendTransaction appends entries, and then those of a transaction, which it commits by end.
func appendTransaction(w *queue.Writer, end func() error) error {
	appendAll := func(count int) error {
		for n := range count {
			if _, err := w.Append(fmt.Append(nil, n), []byte(queuetest.Posting(n))); err != nil {
				return err
			}
		}
		return nil
	}
	return errors.Join(appendAll(entriesBefore), w.Flush(), w.Begin(), appendAll(entriesOfOne), end())
}

func entriesIn(fsys vfs.FS) (int, error) {
	r, err := queue.OpenReader(queuetest.Dir, &queue.ReaderOptions{FS: fsys})
	if err != nil {
		return 0, err
	}
	defer r.Close()
	items, err := queuetest.TryScan(r, queue.Position{})
	return len(items), err
}

// A crash before any operation leaves all entries of a transaction or none, for readers and for
// the next Writer. What readers have seen, and what was flushed, the next Writer keeps.
func TestTransactionAfterCrash(t *testing.T) {
	random, tally := testseed.Rand(t), crashtest.NewTally(t, "crashes")
	for name, end := range map[string]func(*queue.Writer) error{"flushed": (*queue.Writer).Flush, "sealed": (*queue.Writer).Seal} {
		t.Run(name, func(t *testing.T) {
			disk := queuetest.NewMem(t)
			var one sync.Mutex
			var begun, committed atomic.Bool
			crash := func(op vfs.Op) error {
				one.Lock()
				defer one.Unlock()
				if t.Failed() || !begun.Load() {
					return nil
				}
				seen, err := entriesIn(disk.CrashClone(vfs.KeepAll))
				assert.NoError(t, err)
				for _, way := range crashtest.Ways(random) {
					tally.Case()
					after := disk.CrashClone(way.Keep)
					w, err := queue.OpenWriter(queuetest.Dir, queuetest.Options(after))
					if !assert.NoError(t, err, "%v: %s", op, way.Name) {
						return nil
					}
					assert.NoError(t, w.Close())
					kept, err := entriesIn(after)
					assert.NoError(t, err)
					assert.Contains(t, []int{entriesBefore, entriesBefore + entriesOfOne}, kept, "%v: %s", op, way.Name)
					assert.GreaterOrEqual(t, kept, seen, "%v: %s: a reader is ahead", op, way.Name)
					assert.False(t, committed.Load() && kept == entriesBefore, "%v: %s: the transaction is lost", op, way.Name)
				}
				return nil
			}
			options := queuetest.Options(vfs.NewFault(disk, crash))
			options.BlockBytes = 2 << 10
			w, err := queue.OpenWriter(queuetest.Dir, options)
			require.NoError(t, err)
			require.NoError(t, appendTransaction(w, func() error {
				begun.Store(true)
				err := end(w)
				committed.Store(true)
				return err
			}))
			require.NoError(t, w.Close())
			kept, err := entriesIn(disk)
			require.NoError(t, err)
			require.Equal(t, entriesBefore+entriesOfOne, kept)
		})
	}
}

// A failure of any operation leaves all entries of a transaction or none.
func TestTransactionAfterFault(t *testing.T) {
	tally := crashtest.NewTally(t, "faults")
	for k := int64(1); ; k++ {
		disk, failed := queuetest.NewMem(t), atomic.Bool{}
		options := queuetest.Options(vfs.NewFault(disk, func(op vfs.Op) error {
			if op.N == k {
				failed.Store(true)
				return vfs.ErrNoSpace
			}
			return nil
		}))
		options.BlockBytes = 2 << 10
		w, err := queue.OpenWriter(queuetest.Dir, options)
		if err == nil {
			err = errors.Join(appendTransaction(w, w.Flush), w.Close())
		}
		tally.Case()
		next, nextErr := queue.OpenWriter(queuetest.Dir, queuetest.Options(disk))
		require.NoError(t, nextErr)
		require.NoError(t, next.Close())
		kept, readErr := entriesIn(disk)
		require.NoError(t, readErr)
		require.Contains(t, []int{0, entriesBefore, entriesBefore + entriesOfOne}, kept, "operation %d: %v", k, err)
		if !failed.Load() {
			require.NoError(t, err)
			require.Equal(t, entriesBefore+entriesOfOne, kept)
			return
		}
	}
}

// Close discards a transaction that was not flushed, and not one without entries. Entries after
// a transaction are kept as usual.
func TestTransactionEnds(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(w *queue.Writer) error
		want int
	}{
		"closed":              {func(w *queue.Writer) error { return appendTransaction(w, func() error { return nil }) }, entriesBefore},
		"without entries":     {func(w *queue.Writer) error { return errors.Join(w.Begin(), w.Flush()) }, 0},
		"then another entry":  {func(w *queue.Writer) error { return errors.Join(appendTransaction(w, w.Flush), appendOne(w)) }, entriesBefore + entriesOfOne + 1},
		"empty, then another": {func(w *queue.Writer) error { return errors.Join(w.Begin(), w.Flush(), appendOne(w)) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			disk := queuetest.NewMem(t)
			w, err := queue.OpenWriter(queuetest.Dir, queuetest.Options(disk))
			require.NoError(t, err)
			require.NoError(t, c.do(w))
			require.NoError(t, w.Close())
			require.ErrorIs(t, w.Begin(), queue.ErrClosed)
			again, err := queue.OpenWriter(queuetest.Dir, queuetest.Options(disk))
			require.NoError(t, err)
			require.NoError(t, again.Close())
			kept, err := entriesIn(disk)
			require.NoError(t, err)
			require.Equal(t, c.want, kept)
			queuetest.RequireSound(t, disk)
		})
	}
}

func appendOne(w *queue.Writer) error {
	_, err := w.Append([]byte("one"), []byte("more"))
	return err
}
