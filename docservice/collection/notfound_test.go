package collection

import (
	"fmt"
	"testing"
	"time"

	"docstore/docservice"

	"github.com/stretchr/testify/require"
)

// TestNotFoundNeedsACompleteIndex tests every kind of evidence with every state of
// knowledge: exactly one combination is answered "not found".
func TestNotFoundNeedsACompleteIndex(t *testing.T) {
	complete := knowledge{reached: true}
	for bits := range 1 << 8 {
		k := knowledge{
			reached: bits&1 != 0, stopped: bits&2 != 0, forked: bits&4 != 0, truncated: bits&8 != 0,
			damaged: bits&16 != 0, headUnread: bits&32 != 0, stale: bits&64 != 0, behind: bits&128 != 0,
		}
		for _, e := range []evidence{noEntry, noDocument, notSettled} {
			t.Run(fmt.Sprintf("%+v evidence %d", k, e), func(t *testing.T) {
				err := absence(e, k.gap())
				if k == complete && e != notSettled {
					require.Equal(t, docservice.ErrNotFound, err)
				} else {
					require.ErrorIs(t, err, docservice.ErrUnavailable)
					require.NotErrorIs(t, err, docservice.ErrNotFound)
				}
			})
		}
	}
}

// TestExpiredEntryIsUnavailableBeforeTheEnd: the unread part of the queue may hold a
// newer version that has not expired.
func TestExpiredEntryIsUnavailableBeforeTheEnd(t *testing.T) {
	f := newMemFixture(t)
	f.expiring("id", time.Minute)
	f.seal()
	c := f.ready()
	requireDocument(t, c, "id", documentOf("id"))
	f.clock.advance(time.Hour)
	requireNone(t, c, "id", docservice.ErrNotFound)
	require.NoError(t, c.Close())

	f.put("damaged", "document")
	f.expiring("id", 24*time.Hour)
	f.seal()
	path, good := f.segment(2)
	replace(t, f.fs, path, flipped(t, good, "damaged"))
	c = f.open()
	waitFor(t, c, "the tail stops", hasFault(2))
	requireNone(t, c, "id", docservice.ErrUnavailable)
	_, answers, err := c.GetMany(nil, [][]byte{[]byte("id")}, 1<<20)
	require.NoError(t, err)
	require.ErrorIs(t, answers[0].Err, docservice.ErrUnavailable)
	replace(t, f.fs, path, good)
	require.NoError(t, c.WaitReady(soon(t)))
	requireDocument(t, c, "id", documentOf("id"))
}

// TestRebuildPace: the first rebuild runs at once, later ones at growing intervals.
func TestRebuildPace(t *testing.T) {
	var pace rebuildPace
	allow := func(now time.Time) bool {
		if !pace.allows(now) {
			return false
		}
		pace.count(now)
		return true
	}
	now := time.Unix(1_700_000_000, 0)
	require.True(t, allow(now))
	for _, minutes := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		pause := time.Duration(minutes) * time.Minute
		require.False(t, allow(now.Add(pause-time.Second)), pause)
		now = now.Add(pause)
		require.True(t, allow(now), pause)
	}
	now = now.Add(2 * maxRebuildPause)
	require.True(t, allow(now), "it was long ago")
	require.True(t, allow(now.Add(minRebuildPause)))
}

// TestBehindCollectionFindsNothingMissing: entries arrive while the collection is behind. It is
// ready when it is not behind any more, and its index includes them.
func TestBehindCollectionFindsNothingMissing(t *testing.T) {
	f := newMemFixture(t)
	f.options.Behind = true
	f.put("first", "document")
	f.seal()
	c := f.open()
	requireBehind := func() {
		t.Helper()
		require.False(t, c.Ready())
		requireDocument(t, c, "first", "document")
		requireNone(t, c, "second", docservice.ErrUnavailable)
		require.ErrorIs(t, c.Scan(t.Context(), docservice.ScanOptions{}, func([]byte, Answer) error { return nil }), docservice.ErrUnavailable)
	}
	waitFor(t, c, "the first document is read", func(s Status) bool { return s.Applied == 1 && s.LagBytes() == 0 })
	requireBehind()
	c.SetBehind(false)
	require.NoError(t, c.WaitReady(soon(t)))
	requireNone(t, c, "second", docservice.ErrNotFound)
	for round := range 200 {
		c.SetBehind(true)
		requireBehind()
		id := fmt.Sprint("of round ", round)
		f.put(id, "document")
		c.SetBehind(false)
		if c.Ready() {
			requireDocument(t, c, id, "document")
		}
		require.NoError(t, c.WaitReady(soon(t)))
		requireDocument(t, c, id, "document")
		requireNone(t, c, "second", docservice.ErrNotFound)
	}
}
