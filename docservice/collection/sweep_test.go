package collection

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/internal/testseed"
	"docstore/queue"
)

// expiring appends a document that expires after a while.
func (f *fixture) expiring(id string, after time.Duration) queue.Address {
	f.t.Helper()
	at, err := f.queueWriter().Put(queue.Record{ID: []byte(id), Document: []byte(documentOf(id)), Expires: f.clock.Now().Add(after)})
	require.NoError(f.t, err)
	require.NoError(f.t, f.writer.Flush())
	return at
}

// indexed returns the ids in the index.
func indexed(t testing.TB, c *Collection) (ids []string) {
	t.Helper()
	it := c.serving.Load().index.NewIter(bounds(&docservice.ScanOptions{}))
	defer it.Close()
	for it.Next() {
		ids = append(ids, string(it.Key()))
	}
	require.NoError(t, it.Err())
	return ids
}

func TestSweepRemovesExpiredEntries(t *testing.T) {
	f := newMemFixture(t)
	f.put("stays", "for ever")
	f.expiring("goes", time.Minute)
	f.expiring("goes later", time.Minute+time.Second)
	c := f.ready()
	position := c.Status().Position
	require.NoError(t, c.serving.Load().sweeper.sweep(t.Context())) // determines the earliest expiry
	f.clock.advance(time.Minute + sweepGrace - time.Second)
	require.NoError(t, c.serving.Load().sweeper.sweep(t.Context()))
	require.Equal(t, []string{"goes", "goes later", "stays"}, indexed(t, c), "the grace is not over")
	f.clock.advance(time.Second)
	require.NoError(t, c.serving.Load().sweeper.sweep(t.Context()))
	require.Equal(t, []string{"goes later", "stays"}, indexed(t, c))
	requireNone(t, c, "goes", docservice.ErrNotFound)
	f.clock.advance(time.Second)
	require.NoError(t, c.serving.Load().sweeper.sweep(t.Context()))
	require.Equal(t, []string{"stays"}, indexed(t, c))
	require.EqualValues(t, 2, c.Status().Swept)

	// Entries appended meanwhile are swept, too, and removed ones do not return.
	require.NoError(t, c.WaitFor(soon(t), f.expiring("new", time.Minute)))
	f.clock.advance(time.Minute + sweepGrace)
	require.NoError(t, c.serving.Load().sweeper.sweep(t.Context()))
	require.EqualValues(t, 3, c.Status().Swept)
	require.NoError(t, c.Close())
	c = f.ready()
	require.Equal(t, []string{"stays"}, indexed(t, c))
	require.NotEqual(t, position, c.Status().Position)
}

// TestSweepOnlyIfSomethingIsDue checks the recorded earliest expiry.
func TestSweepOnlyIfSomethingIsDue(t *testing.T) {
	f := newMemFixture(t)
	f.put("stays", "for ever")
	c := f.ready()
	require.EqualValues(t, 1, c.serving.Load().indexing.soonest)
	require.NoError(t, c.serving.Load().sweeper.sweep(t.Context()))
	require.Zero(t, c.serving.Load().indexing.soonest)
	at := f.clock.Now().Add(time.Hour).Unix()
	require.NoError(t, c.WaitFor(soon(t), f.expiring("b", 2*time.Hour)))
	require.NoError(t, c.WaitFor(soon(t), f.expiring("a", time.Hour)))
	require.EqualValues(t, at, c.serving.Load().indexing.soonest)
	f.clock.advance(time.Hour + sweepGrace)
	require.NoError(t, c.serving.Load().sweeper.sweep(t.Context()))
	require.EqualValues(t, at+3600, c.serving.Load().indexing.soonest)
	require.NoError(t, c.Close())
	f.clock.advance(time.Hour)
	require.Error(t, c.serving.Load().sweeper.sweep(t.Context()), "it is closed")
	require.EqualValues(t, at+3600, c.serving.Load().indexing.soonest, "a failed pass keeps the earliest expiry")
}

// TestSweepSparesNewerVersions: a newer version arrives between the two halves of a step.
func TestSweepSparesNewerVersions(t *testing.T) {
	f := newMemFixture(t)
	for _, id := range []string{"deleted", "expired", "extended", "renewed"} {
		f.expiring(id, 0)
	}
	c := f.ready()
	f.clock.advance(sweepGrace)
	now := f.clock.Now().Add(-sweepGrace)
	var remaining expiries
	ids, last, err := c.serving.Load().sweeper.expired(nil, now, &remaining)
	require.NoError(t, err)
	require.Len(t, ids, 4)
	require.Nil(t, last)
	f.put("renewed", "anew")
	f.expiring("extended", time.Minute)
	at, err := f.writer.Delete([]byte("deleted"))
	require.NoError(t, err)
	require.NoError(t, f.writer.Flush())
	require.NoError(t, c.WaitFor(soon(t), at))
	require.NoError(t, c.serving.Load().sweeper.removeExpired(ids, now))
	require.Equal(t, []string{"extended", "renewed"}, indexed(t, c))
	requireDocument(t, c, "renewed", "anew")
	requireDocument(t, c, "extended", documentOf("extended"))
	require.EqualValues(t, 1, c.Status().Swept)
}

// TestSweepTakesSteps sweeps more entries than a step examines.
func TestSweepTakesSteps(t *testing.T) {
	f := newMemFixture(t)
	const ids = 2*sweepStepEntries + 10
	for i := range ids {
		_, err := f.queueWriter().Put(queue.Record{
			ID: fmt.Appendf(nil, "%06d", i), Document: []byte("x"), Expires: f.clock.Now().Add(time.Duration(i%2) * time.Hour),
		})
		require.NoError(t, err)
	}
	require.NoError(t, f.writer.Flush())
	c := f.ready()
	f.clock.advance(sweepGrace)
	require.NoError(t, c.serving.Load().sweeper.sweep(t.Context()))
	require.EqualValues(t, ids/2, c.Status().Swept)
	require.Len(t, indexed(t, c), ids/2)
}

// TestSweepDuringTail sweeps without a pause while versions arrive and expire, and compares
// with a map.
func TestSweepDuringTail(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.Seed(t), 1))
	f := newMemFixture(t)
	f.options.SweepInterval = time.Nanosecond
	f.put("first", "first")
	c := f.ready()
	expires := map[string]time.Time{"first": {}}
	var last queue.Address
	for range 3000 {
		id := fmt.Sprint(rng.IntN(50))
		var err error
		switch rng.IntN(4) {
		case 0:
			last, err = f.writer.Delete([]byte(id))
			delete(expires, id)
		case 1:
			last, err = f.writer.Append([]byte(id), []byte(documentOf(id)))
			expires[id] = time.Time{}
		default:
			expires[id] = f.clock.Now().Add(time.Duration(rng.IntN(100)) * time.Minute).Truncate(time.Second)
			last, err = f.writer.Put(queue.Record{ID: []byte(id), Document: []byte(documentOf(id)), Expires: expires[id]})
		}
		require.NoError(t, err)
		if rng.IntN(20) == 0 {
			require.NoError(t, f.writer.Flush())
			f.clock.advance(time.Duration(rng.IntN(60)) * time.Minute)
		}
	}
	require.NoError(t, f.writer.Flush())
	require.NoError(t, c.WaitFor(soon(t), last))
	f.clock.advance(100*time.Minute + sweepGrace)
	live := 0
	for _, at := range expires {
		if at.IsZero() {
			live++
		}
	}
	ctx := soon(t)
	for len(indexed(t, c)) != live {
		require.NoError(t, ctx.Err(), "the sweep does not end: %v", indexed(t, c))
		time.Sleep(time.Millisecond)
	}
	require.Positive(t, c.Status().Swept)
	for id, at := range expires {
		if at.IsZero() && id != "first" {
			requireDocument(t, c, id, documentOf(id))
		}
	}
}

// TestMergesLeaveOutExpiredEntries: an entry leaves when the index is merged, after the same
// grace as with a sweep. The position of the index stays, and no older version is served.
func TestMergesLeaveOutExpiredEntries(t *testing.T) {
	f := newMemFixture(t)
	f.options.SweepInterval = 1000 * time.Hour
	f.put("stays", "for ever")
	f.put("goes", "first version")
	c := f.ready()
	index := c.serving.Load().index
	require.NoError(t, index.Flush())
	require.NoError(t, c.WaitFor(soon(t), f.expiring("goes", time.Minute)))
	require.NoError(t, index.Flush())
	f.clock.advance(time.Minute + sweepGrace - time.Second)
	require.NoError(t, c.WaitFor(soon(t), f.put("another", "document")))
	require.NoError(t, index.Flush())
	require.NoError(t, index.WaitIdle(t.Context()))
	require.Equal(t, []string{"another", "goes", "stays"}, indexed(t, c), "the grace is not over")
	f.clock.advance(time.Second)
	for i := range 20 { // until all is merged
		require.NoError(t, c.WaitFor(soon(t), f.put(fmt.Sprint("later ", i), "document")))
		require.NoError(t, index.Flush())
		requireNone(t, c, "goes", docservice.ErrNotFound)
	}
	require.NoError(t, index.WaitIdle(t.Context()))
	require.NotContains(t, indexed(t, c), "goes")
	require.Zero(t, c.Status().Swept)
	requireNone(t, c, "goes", docservice.ErrNotFound)
	position := c.Status().Position
	require.NoError(t, c.Close())
	require.Equal(t, position, f.ready().Status().Position)
}
