package lsm

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/internal/virtualtime"
	"docstore/lsm/internal/memtable"
)

// testEnv is a commitEnv without a store. The functions replace its default behavior.
type testEnv struct {
	c committer
	counters

	onPrepare func() (time.Duration, error)
	onWrite   func() error
	onApply   func() error
	onSync    func() error
	onFlush   func() error

	// Guarded by committer.mu.
	written, applied []uint64 // first sequence numbers
	failures         []error

	syncs, flushes atomic.Int64
}

func newTestEnv(durable bool) *testEnv {
	e := new(testEnv)
	e.c.init(e, durable, &e.counters)
	return e
}

func (e *testEnv) prepare(int, int) (time.Duration, error) {
	if e.onPrepare == nil {
		return 0, nil
	}
	return e.onPrepare()
}

func (e *testEnv) write(_ *commit, first uint64) error {
	if e.onWrite != nil {
		if err := e.onWrite(); err != nil {
			return err
		}
	}
	e.written = append(e.written, first)
	return nil
}

func (e *testEnv) apply(_ *commit, first uint64) error {
	if e.onApply != nil {
		if err := e.onApply(); err != nil {
			return err
		}
	}
	e.applied = append(e.applied, first)
	return nil
}

func (e *testEnv) fail(err error) error {
	e.failures = append(e.failures, err)
	return fmt.Errorf("%w: %w", errLogFailed, err)
}

func (e *testEnv) sync() error {
	e.syncs.Add(1)
	if e.onSync == nil {
		return nil
	}
	return e.onSync()
}

func (e *testEnv) flush() error {
	e.flushes.Add(1)
	if e.onFlush == nil {
		return nil
	}
	return e.onFlush()
}

func (e *testEnv) set(key string) error {
	o := op{opSet, []byte(key), []byte("value")}
	return e.c.commitOne(o, memtable.Hash(o.key))
}

// start commits n single writes concurrently. The channel receives their results.
func (e *testEnv) start(n int) <-chan error {
	results := make(chan error, n)
	for i := range n {
		go func() { results <- e.set(fmt.Sprint(i)) }()
	}
	return results
}

func requireResults(t *testing.T, results <-chan error, want error) {
	t.Helper()
	for range cap(results) {
		require.ErrorIs(t, <-results, want)
	}
}

func TestCommitsHaveConsecutiveSequenceNumbers(t *testing.T) {
	e := newTestEnv(false)
	e.onWrite = func() error {
		if len(e.written) != len(e.applied) {
			return errors.New("a batch is written before the previous one is applied")
		}
		return nil
	}
	e.onApply = func() error {
		if visible, first := e.c.visible.Load(), e.written[len(e.written)-1]; visible != first-1 {
			return fmt.Errorf("write %d is visible before write %d is applied", visible, first)
		}
		return nil
	}
	const batches, perBatch, singles = 100, 3, 100
	var all sync.WaitGroup
	for i := range batches {
		all.Go(func() {
			var b Batch
			for j := range perBatch {
				assert.NoError(t, b.Set(fmt.Append(nil, i, j), nil))
			}
			assert.NoError(t, e.c.commitBatch(&b))
		})
	}
	for i := range singles {
		all.Go(func() { assert.NoError(t, e.set(fmt.Sprint(i))) })
	}
	all.Wait()
	require.Equal(t, e.written, e.applied)
	require.Len(t, e.written, batches+singles)
	for i, first := range e.written[1:] {
		require.Contains(t, []uint64{1, perBatch}, first-e.written[i])
	}
	require.EqualValues(t, batches*perBatch+singles, e.c.visible.Load())
	writes, _ := e.c.written()
	require.EqualValues(t, batches*perBatch+singles, writes)
}

func TestEmptyBatchCommitsNothing(t *testing.T) {
	e := newTestEnv(false)
	require.NoError(t, e.c.commitBatch(new(Batch)))
	require.Empty(t, e.written)
}

func TestConcurrentCommitsShareASync(t *testing.T) {
	e := newTestEnv(true)
	release := make(chan struct{})
	e.onSync = func() error {
		<-release
		return nil
	}
	first := e.start(1)
	until(func() bool { return e.syncs.Load() == 1 })
	rest := e.start(100)
	until(func() bool { return e.c.visible.Load() == 101 }) // commits do not wait for the sync of others
	require.Empty(t, first)
	close(release)
	requireResults(t, first, nil)
	requireResults(t, rest, nil)
	require.EqualValues(t, 2, e.syncs.Load())
	require.NoError(t, e.c.sync(101))
	require.EqualValues(t, 2, e.syncs.Load(), "the writes are durable")
}

// TestSyncDoesNotCoverLaterCommits commits while a sync is running, which may have
// passed the end of the log as it was before.
func TestSyncDoesNotCoverLaterCommits(t *testing.T) {
	e := newTestEnv(false)
	require.NoError(t, e.set("a"))
	e.onSync = func() error { return e.set("b") }
	require.NoError(t, e.c.sync(1))
	e.onSync = nil
	require.NoError(t, e.c.sync(2))
	require.EqualValues(t, 2, e.syncs.Load())
}

func TestFailedSyncIsReplacedByFlush(t *testing.T) {
	bad := errors.New("bad disk")
	e := newTestEnv(true)
	e.onSync = func() error { return bad }
	require.NoError(t, e.set("a"))
	require.Equal(t, []error{bad}, e.failures)
	require.EqualValues(t, 1, e.flushes.Load())

	full := errors.New("disk full")
	e.onFlush = func() error { return full }
	err := e.set("b")
	require.ErrorIs(t, err, full)
	require.EqualValues(t, 2, e.c.visible.Load(), "visible, durability unknown")

	for _, known := range []error{errLogFailed, errOldLog} { // recorded already
		e := newTestEnv(true)
		e.onSync = func() error { return known }
		require.NoError(t, e.set("a"))
		require.Empty(t, e.failures)
		require.EqualValues(t, 1, e.flushes.Load())
	}
}

func TestFailedCommitIsInvisible(t *testing.T) {
	bad := errors.New("bad disk")
	fail := func() error { return bad }
	for name, sabotage := range map[string]func(e *testEnv){
		"prepare": func(e *testEnv) { e.onPrepare = func() (time.Duration, error) { return 0, bad } },
		"write":   func(e *testEnv) { e.onWrite = fail },
		"apply":   func(e *testEnv) { e.onApply = fail },
	} {
		t.Run(name, func(t *testing.T) {
			e := newTestEnv(true)
			require.NoError(t, e.set("a"))
			sabotage(e)
			require.ErrorIs(t, e.set("b"), bad)
			require.EqualValues(t, 1, e.c.visible.Load())
			require.EqualValues(t, 1, e.syncs.Load())
			require.Equal(t, []uint64{1}, e.applied)
			require.Equal(t, name != "prepare", len(e.failures) == 1)
			e.onPrepare, e.onWrite, e.onApply = nil, nil, nil
			require.NoError(t, e.set("c"))
			require.Equal(t, []uint64{1, 2}, e.applied)
		})
	}
}

func TestStalledCommitsWaitForProgress(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		e := newTestEnv(false)
		full := true // guarded by committer.mu
		e.onPrepare = func() (time.Duration, error) {
			if full {
				return 0, errStalled
			}
			return 0, nil
		}
		results := e.start(10)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Empty(t, results)
		e.c.advance(func() {}) // without space
		synctest.Wait()
		require.Empty(t, results)
		e.c.advance(func() { full = false })
		requireResults(t, results, nil)
		require.EqualValues(t, 20, e.stalls.Load())
		require.EqualValues(t, 10*time.Second, e.stallNanos.Load())
	})
}

func TestDelayedCommitReleasesTheLock(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		e := newTestEnv(false)
		delay := time.Second // guarded by committer.mu
		e.onPrepare = func() (time.Duration, error) {
			d := delay
			delay = 0
			return d, nil
		}
		slow := e.start(1)
		synctest.Wait()
		require.NoError(t, e.set("b"), "it is not delayed")
		require.Empty(t, slow)
		requireResults(t, slow, nil)
		require.EqualValues(t, 1, e.delays.Load())
		require.EqualValues(t, time.Second, e.delayNanos.Load())
		require.Equal(t, []uint64{1, 2}, e.applied)
	})
}

// TestWaitingCommitsKeepTheirBatches lets single writes wait at the same time: they must
// not share the memory of their batches.
func TestWaitingCommitsKeepTheirBatches(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		e := newTestEnv(false)
		full := true
		keys := map[string]bool{} // both guarded by committer.mu
		e.onPrepare = func() (time.Duration, error) {
			if full {
				return 0, errStalled
			}
			return 0, nil
		}
		results := e.start(10)
		synctest.Wait()
		store := &keyEnv{testEnv: e, keys: keys}
		e.c.advance(func() { full, e.c.env = false, store })
		requireResults(t, results, nil)
		require.Len(t, keys, 10)
	})
}

// keyEnv collects the keys of single writes.
type keyEnv struct {
	*testEnv
	keys map[string]bool
}

func (e *keyEnv) apply(c *commit, first uint64) error {
	e.keys[string(c.one.key)] = true
	return e.testEnv.apply(c, first)
}

func TestCloseEndsWaitingCommits(t *testing.T) {
	for name, prepare := range map[string]func() (time.Duration, error){
		"stalled": func() (time.Duration, error) { return 0, errStalled },
		"delayed": func() (time.Duration, error) { return time.Hour, nil },
	} {
		t.Run(name, func(t *testing.T) {
			virtualtime.Test(t, func(t *testing.T) {
				e := newTestEnv(true)
				e.onPrepare = prepare
				results := e.start(10)
				synctest.Wait()
				e.c.close()
				requireResults(t, results, ErrClosed)
				require.Empty(t, e.written)
				require.ErrorIs(t, e.set("a"), ErrClosed)
				require.ErrorIs(t, e.c.commitBatch(new(Batch)), ErrClosed)
				require.ErrorIs(t, e.c.exclusive(func() error { return nil }), ErrClosed)
				require.ErrorIs(t, e.c.rejected(), ErrClosed)
			})
		})
	}
}

func TestCloseWaitsForTheCurrentSync(t *testing.T) {
	e := newTestEnv(true)
	release, ended := make(chan struct{}), make(chan struct{})
	e.onSync = func() error {
		<-release
		return nil
	}
	first := e.start(1)
	until(func() bool { return e.syncs.Load() == 1 })
	waiting := e.start(5)
	until(func() bool { return e.c.visible.Load() == 6 })
	go func() {
		e.c.close()
		close(ended)
	}()
	<-e.c.closed
	select {
	case <-ended:
		require.Fail(t, "closed during a sync")
	case <-time.After(10 * time.Millisecond):
	}
	close(release)
	<-ended
	requireResults(t, first, nil)
	requireResults(t, waiting, ErrClosed)
	require.EqualValues(t, 1, e.syncs.Load())
}

// until waits for a condition.
func until(met func() bool) {
	for !met() {
		runtime.Gosched()
	}
}
