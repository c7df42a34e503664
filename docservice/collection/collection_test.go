package collection

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
)

func TestAppendUpdateDeleteExpire(t *testing.T) {
	for name, f := range map[string]*fixture{
		"memory": newMemFixture(t),
		"files":  newFixture(t, vfs.OS, t.TempDir()),
	} {
		t.Run(name, func(t *testing.T) {
			f.t = t
			f.put("1", "one")
			c := f.ready()
			requireDocument(t, c, "1", "one")
			requireNone(t, c, "2", docservice.ErrNotFound)

			// While it is tailed:
			require.NoError(t, c.WaitFor(soon(t), f.put("2", "two")))
			requireDocument(t, c, "2", "two")
			require.NoError(t, c.WaitFor(soon(t), f.put("1", "one, changed")))
			requireDocument(t, c, "1", "one, changed")

			at, err := f.writer.Delete([]byte("1"))
			require.NoError(t, err)
			require.NoError(t, f.writer.Flush())
			require.NoError(t, c.WaitFor(soon(t), at))
			requireNone(t, c, "1", docservice.ErrNotFound)
			requireDocument(t, c, "2", "two")

			at, err = f.writer.Put(queue.Record{
				ID: []byte("2"), Document: []byte("two, for a while"), Expires: f.clock.Now().Add(time.Minute),
			})
			require.NoError(t, err)
			require.NoError(t, f.writer.Flush())
			require.NoError(t, c.WaitFor(soon(t), at))
			requireDocument(t, c, "2", "two, for a while")
			f.clock.advance(59 * time.Second)
			requireDocument(t, c, "2", "two, for a while")
			f.clock.advance(time.Second)
			requireNone(t, c, "2", docservice.ErrNotFound)

			status := c.Status()
			assert.Equal(t, GetCounts{Found: 6, NotFound: 3}, status.Gets)
			assert.Equal(t, uint64(5), status.Applied)
			assert.Empty(t, status.Faults)
		})
	}
}

func TestBadIDs(t *testing.T) {
	f := newMemFixture(t)
	f.put("1", "one")
	c := f.ready()
	requireNone(t, c, "", docservice.ErrBadID) // the index's empty key is the position
	requireNone(t, c, strings.Repeat("x", queue.MaxIDBytes+1), docservice.ErrBadID)
	requireNone(t, c, strings.Repeat("x", queue.MaxIDBytes), docservice.ErrNotFound)
}

// A server to which no segment has been copied must not answer "not found".
func TestQueueThatHasNotArrivedYet(t *testing.T) {
	f := newMemFixture(t)
	c := f.open()
	waitFor(t, c, "the queue was looked at", func(Status) bool {
		c.serving.Load().health.mu.Lock()
		defer c.serving.Load().health.mu.Unlock()
		return c.serving.Load().health.mu.tail.current
	})
	assert.False(t, c.Status().Ready)
	requireNone(t, c, "1", docservice.ErrUnavailable)
	at := f.put("1", "one")
	require.NoError(t, c.WaitFor(soon(t), at))
	requireDocument(t, c, "1", "one")
	require.NoError(t, c.WaitReady(soon(t)))
	requireNone(t, c, "2", docservice.ErrNotFound)
}

// Segments may arrive in any order. Documents after a missing segment are unavailable, not
// "not found".
func TestSegmentThatArrivesLate(t *testing.T) {
	source, path, second := sealedFixture(t)
	source.putMany("third", 100)
	source.seal()
	firstPath, first := source.segment(1)
	thirdPath, third := source.segment(3)

	f := newMemFixture(t)
	replace(t, f.fs, firstPath, first)
	replace(t, f.fs, thirdPath, third)
	c := f.open()
	waitFor(t, c, "the first is read", func(s Status) bool { return s.Applied == 100 })
	assert.False(t, c.Status().Ready)
	requireDocument(t, c, "first-1", documentOf("first-1"))
	requireNone(t, c, "third-1", docservice.ErrUnavailable)

	replace(t, f.fs, path, second)
	require.NoError(t, c.WaitReady(soon(t)))
	requireDocument(t, c, "second-1", documentOf("second-1"))
	requireDocument(t, c, "third-1", documentOf("third-1"))
	requireNone(t, c, "fourth-1", docservice.ErrNotFound)
}

func TestRestartContinuesAtPosition(t *testing.T) {
	f := newMemFixture(t)
	f.putMany("first", 500)
	f.seal()
	f.putMany("second", 500)
	c := f.ready()
	assert.Equal(t, uint64(1000), c.Status().Applied)
	require.NoError(t, c.Close())

	c = f.ready()
	assert.Zero(t, c.Status().Applied, "everything was in the index already")
	requireDocument(t, c, "first-0", documentOf("first-0"))
	requireDocument(t, c, "second-499", documentOf("second-499"))
	require.NoError(t, c.Close())

	f.put("third", "three")
	c = f.ready()
	assert.Equal(t, uint64(1), c.Status().Applied)
	requireDocument(t, c, "third", "three")
}

// The position is never ahead of the entries after a crash.
func TestCrashWhileTailing(t *testing.T) {
	random := testseed.Rand(t)
	mem := vfs.NewMem()
	f := newFixture(t, mem, "/")
	f.options.MemtableBytes = 16 << 10 // so that tables are written and merged
	c := f.open()
	want := map[string]string{}
	for round := range 12 {
		for range 60 {
			id := fmt.Sprint(random.IntN(300))
			document := fmt.Sprintf("%s in round %d", id, round)
			_, err := f.queueWriter().Append([]byte(id), []byte(document))
			require.NoError(t, err)
			want[id] = document
		}
		require.NoError(t, f.writer.Flush())
		if round%4 == 3 {
			f.seal()
		}
		// The tail may be anywhere at this point.
		for name, clone := range map[string]*vfs.Mem{
			"process":     mem.ProcessCrashClone(),
			"power":       mem.CrashClone(vfs.KeepSynced),
			"power, torn": mem.CrashClone(vfs.KeepRandom(random.Uint64())),
		} {
			after := newFixture(t, clone, "/")
			after.queueWriter() // a block whose commit mark was lost is marked again
			d := after.ready()
			for id, document := range want {
				got, err := d.Get(nil, []byte(id))
				require.NoError(t, err, "round %d, %s: %s", round, name, id)
				require.Equal(t, document, string(got), "round %d, %s: %s", round, name, id)
			}
			require.NoError(t, d.Close())
			require.NoError(t, after.writer.Close())
		}
	}
	require.NoError(t, c.Close())
}

func TestProgressAndLag(t *testing.T) {
	f := newMemFixture(t)
	f.putMany("a", 300)
	f.seal()
	f.putMany("b", 300)
	c := f.ready()
	status := c.Status()
	assert.True(t, status.Ready)
	assert.Equal(t, status.PresentBytes, status.TailedBytes)
	assert.Zero(t, status.LagBytes())
	assert.Zero(t, status.Lag)
	assert.Equal(t, f.clock.Now(), status.LastAppended)
	f.clock.advance(time.Hour)
	assert.Zero(t, c.Status().Lag, "a queue without new entries does not lag")

	stats, err := c.Stats()
	require.NoError(t, err)
	assert.Equal(t, "jobs", stats.Name)
	assert.Equal(t, 2, stats.Segments)
	assert.Equal(t, int64(600), stats.SegmentDocuments)
	assert.Equal(t, status.PresentBytes, stats.SegmentBytes)
}

func TestWaiting(t *testing.T) {
	f := newMemFixture(t)
	at := f.put("1", "one")
	c := f.ready()
	require.NoError(t, c.WaitFor(t.Context(), at))
	at.Segment++
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.WaitFor(canceled, at), context.Canceled)
	waited := make(chan error)
	go func() { waited <- c.WaitFor(t.Context(), at) }()
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-waited, ErrClosed)
}

func TestCloseWhileInUse(t *testing.T) {
	f := newMemFixture(t)
	f.putMany("a", 100)
	c := f.ready()
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			for {
				_, err := c.Get(nil, []byte("a-50"))
				if err != nil {
					assert.ErrorIs(t, err, ErrClosed)
					break
				}
				_, _, err = c.GetMany(nil, [][]byte{[]byte("a-1"), []byte("a-2")}, 1<<20)
				if err != nil {
					assert.ErrorIs(t, err, ErrClosed)
					break
				}
			}
		})
	}
	require.NoError(t, c.Close())
	users.Wait()
	require.NoError(t, c.Close(), "again")

	requireNone(t, c, "a-50", ErrClosed)
	_, err := c.Stats()
	require.ErrorIs(t, err, ErrClosed)
	c.Status() // works
	require.ErrorIs(t, c.WaitFor(t.Context(), queue.Address{Segment: 99}), ErrClosed)
}

func TestOpenFails(t *testing.T) {
	f := newMemFixture(t)
	f.put("1", "one")
	c := f.ready()
	_, err := Open("again", f.queueDir, f.dir, &f.options)
	require.Error(t, err, "the index is open already")
	assert.Contains(t, err.Error(), "again")
	require.NoError(t, c.Close())

	c = f.ready() // the failed opens left nothing locked
	requireDocument(t, c, "1", "one")
}
