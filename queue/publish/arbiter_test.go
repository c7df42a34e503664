package publish_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/publishtest"
	"docstore/internal/race"
	"docstore/internal/testseed"
	"docstore/queue/bucket"
	"docstore/queue/publish"
)

func TestMemoryArbiter(t *testing.T) {
	a := publishtest.New()
	publishtest.TestArbiter(t, func(*testing.T) publish.Arbiter { return a.Process() })
}

func openLog(t testing.TB, b bucket.Bucket) *publish.Log {
	t.Helper()
	l, err := publish.OpenLog(t.Context(), b, time.Now)
	require.NoError(t, err)
	return l
}

func raise(t testing.TB, l *publish.Log) publish.Record {
	t.Helper()
	r, err := l.Update(t.Context(), publishtest.RaiseEpoch)
	require.NoError(t, err)
	return r
}

// TestWritersWithAndWithoutArbiterAreRefused: each collection has one place of its commits.
func TestWritersWithAndWithoutArbiterAreRefused(t *testing.T) {
	ctx, b, a := t.Context(), publishtest.NewBucket(t), publishtest.New()
	with := publish.WithArbiter(b, a.Process())
	raise(t, openLog(t, with))
	_, err := openLog(t, b).Update(ctx, publishtest.RaiseEpoch)
	require.ErrorIs(t, err, publish.ErrRefused)
	require.ErrorContains(t, err, "give --etcd")

	other := publishtest.NewBucket(t)
	raise(t, openLog(t, other))
	moved := publish.WithArbiter(other, a.Process())
	_, err = openLog(t, moved).Update(ctx, publishtest.RaiseEpoch)
	require.ErrorContains(t, err, "leave out --etcd")
	record, err := openLog(t, moved).Restore(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 2, record.Epoch)
	require.EqualValues(t, 3, raise(t, openLog(t, moved)).Epoch)

	elsewhere := publish.WithArbiter(b, publishtest.New().Process())
	_, err = openLog(t, elsewhere).Update(ctx, publishtest.RaiseEpoch)
	require.ErrorContains(t, err, "check the endpoints")
}

// TestRestoreAfterLossOfArbiter: the bucket's record continues with another incarnation.
func TestRestoreAfterLossOfArbiter(t *testing.T) {
	ctx, b, a := t.Context(), publishtest.NewBucket(t), publishtest.New()
	with := publish.WithArbiter(b, a.Process())
	old := openLog(t, with)
	_, err := old.Restore(ctx)
	require.ErrorContains(t, err, "holds no collection")
	before := raise(t, old)
	_, err = old.Restore(ctx)
	require.ErrorIs(t, err, publish.ErrRefused)
	require.ErrorContains(t, err, "nothing is lost")

	a.Lose()
	_, err = old.Update(ctx, publishtest.RaiseEpoch)
	require.ErrorContains(t, err, "restore --bucket")
	after, err := openLog(t, with).Restore(ctx)
	require.NoError(t, err)
	require.EqualValues(t, before.Epoch+1, after.Epoch)
	require.NotEqual(t, before.Incarnation, after.Incarnation)
	require.Empty(t, after.Owner)
	require.EqualValues(t, after.Epoch+1, raise(t, old).Epoch, "a log that was open continues")
}

// TestReturnOfLostArbiter: the first etcd was only partitioned when the collection was
// restored to another one.
func TestReturnOfLostArbiter(t *testing.T) {
	ctx, b, first, second := t.Context(), publishtest.NewBucket(t), publishtest.New(), publishtest.New()
	log := openLog(t, publish.WithArbiter(b, first.Process()))
	raise(t, log)
	_, err := openLog(t, publish.WithArbiter(b, second.Process())).Restore(ctx)
	require.NoError(t, err)
	_, err = log.Update(ctx, publishtest.RaiseEpoch)
	require.ErrorIs(t, err, publish.ErrRefused)
	raise(t, openLog(t, publish.WithArbiter(b, second.Process())))
}

// TestArbiterRestoredFromOlderCopy: commits of the bucket that etcd has forgotten are not
// committed a second time.
func TestArbiterRestoredFromOlderCopy(t *testing.T) {
	ctx, b, a := t.Context(), publishtest.NewBucket(t), publishtest.New()
	p := a.Process()
	with := publish.WithArbiter(b, p)
	incarnation := raise(t, openLog(t, with)).Incarnation
	older, _, err := p.Get(ctx, incarnation)
	require.NoError(t, err)
	raise(t, openLog(t, with))
	_, version, err := p.Get(ctx, incarnation)
	require.NoError(t, err)
	swapped, err := p.Swap(ctx, incarnation, version, older, 0)
	require.NoError(t, err)
	require.True(t, swapped)
	_, err = openLog(t, with).Update(ctx, publishtest.RaiseEpoch)
	require.ErrorContains(t, err, "older copy")
	_, err = openLog(t, with).Restore(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 4, raise(t, openLog(t, with)).Epoch)
}

// TestNextWriterCopiesCommitToBucket of a writer that was killed after the swap.
func TestNextWriterCopiesCommitToBucket(t *testing.T) {
	ctx, b, a := t.Context(), publishtest.NewBucket(t), publishtest.New()
	raise(t, openLog(t, publish.WithArbiter(b, a.Process())))
	killed := a.Process()
	log := openLog(t, publish.WithArbiter(b, killed))
	errKilled := errors.New("killed")
	killed.Before = func(operation string) error {
		if operation == "swap" {
			return errKilled
		}
		return nil
	}
	_, err := log.Update(ctx, publishtest.RaiseEpoch)
	require.ErrorIs(t, err, errKilled)
	seen, err := openLog(t, b).Load(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, seen.Epoch, "servers do not serve what the bucket does not hold")
	require.EqualValues(t, 3, raise(t, openLog(t, publish.WithArbiter(b, a.Process()))).Epoch)
}

// TestPausedWriters pauses writers at random operations for three leases, while others take
// over. A commit of a writer that was replaced never succeeds, and each number is committed
// once.
func TestPausedWriters(t *testing.T) {
	rng := testseed.Rand(t)
	rounds := 10_000
	if testing.Short() || race.Enabled {
		rounds /= 10
	}
	for range rounds {
		a, b := publishtest.New(), publishtest.NewBucket(t)
		owner, commits := "", map[uint64]string{}
		type writer struct {
			name string
			p    *publishtest.Process
			log  *publish.Log
		}
		start := func(i int) *writer {
			w := &writer{name: fmt.Sprint("writer-", i), p: a.Process()}
			w.log = openLog(t, publish.WithArbiter(b, w.p))
			return w
		}
		// commit is a change by a publisher: only the record's owner succeeds.
		commit := func(w *writer) error {
			r, err := w.log.Update(t.Context(), func(r publish.Record) (publish.Record, error) {
				if r.Owner != w.name {
					return r, publish.ErrFenced
				}
				return publishtest.RaiseEpoch(r)
			})
			if err == nil {
				require.Equal(t, w.name, r.Owner)
				require.Empty(t, commits[r.Epoch])
				commits[r.Epoch] = w.name
			}
			return err
		}
		takeOver := func(w *writer) {
			if err := w.log.Claim(t.Context()); err != nil {
				require.ErrorIs(t, err, publish.ErrRefused)
				return
			}
			r, err := w.log.Update(t.Context(), func(r publish.Record) (publish.Record, error) {
				r, err := publishtest.RaiseEpoch(r)
				r.Owner = w.name
				return r, err
			})
			require.NoError(t, err)
			require.Empty(t, commits[r.Epoch])
			owner, commits[r.Epoch] = w.name, w.name
		}
		first, second := start(1), start(2)
		takeOver(first)
		require.NoError(t, commit(first))
		// While the first one is at an operation, it is stopped and the second one works.
		at := rng.IntN(6)
		first.p.Before = func(string) error {
			if at--; at == 0 {
				first.p.Stop(true)
				for range 3 {
					a.Advance(publishtest.Lease)
				}
				takeOver(second)
				require.NoError(t, commit(second))
				if rng.IntN(2) == 0 {
					second.log.Release()
				}
				first.p.Stop(false)
			}
			return nil
		}
		if err := commit(first); err != nil {
			require.Equal(t, second.name, owner)
			require.ErrorIs(t, err, publish.ErrFenced)
		}
		first.p.Before = nil
		if owner == first.name {
			require.NoError(t, commit(first))
		} else {
			require.NoError(t, commit(second))
			require.ErrorIs(t, commit(first), publish.ErrFenced)
		}
		log := openLog(t, b)
		r, err := log.Load(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, len(commits), r.Epoch, "numbers are dense")
	}
}
