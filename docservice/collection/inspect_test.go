package collection

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice"
	"docstore/internal/testseed"
	"docstore/queue"
	"docstore/queue/maintain"
)

// TestCensusAgreesWithTheQueue counts the live documents by the index and by the tables of
// the queue.
func TestCensusAgreesWithTheQueue(t *testing.T) {
	random := testseed.Rand(t)
	f := newMemFixture(t)
	for step := range 3 * sweepStepEntries {
		id := fmt.Sprintf("id-%d", random.IntN(2*sweepStepEntries))
		var err error
		switch random.IntN(10) {
		case 0:
			_, err = f.queueWriter().Delete([]byte(id))
		case 1:
			_, err = f.queueWriter().Put(queue.Record{ID: []byte(id), Document: []byte(documentOf(id)), Expires: f.clock.Now().Add(time.Minute)})
		default:
			_, err = f.queueWriter().Append([]byte(id), []byte(documentOf(id)))
		}
		require.NoError(t, err)
		if step%sweepStepEntries == sweepStepEntries/2 {
			f.seal()
		}
	}
	require.NoError(t, f.writer.Flush())
	c := f.ready()
	f.clock.advance(time.Minute)
	counts, err := c.Census(t.Context())
	require.NoError(t, err)
	usage, err := maintain.Measure(t.Context(), c.serving.Load().queue, f.clock.Now(), 0)
	require.NoError(t, err)
	require.Len(t, usage, 4)
	var live, stored int64
	for _, u := range usage {
		require.Equal(t, Live{u.LiveDocuments, u.LiveBytes}, counts[u.Segment], "segment %d", u.Segment)
		live, stored = live+u.LiveBytes, stored+u.StoredBytes
	}
	require.Less(t, live, stored)
	segments, err := c.Segments()
	require.NoError(t, err)
	require.Len(t, segments, len(usage))
	require.NoError(t, c.Close())
	_, err = c.Census(t.Context())
	require.Error(t, err)
	_, err = c.Segments()
	require.ErrorIs(t, err, ErrClosed)
}

func TestLocateAndVersions(t *testing.T) {
	f := newMemFixture(t)
	first := f.put("a", "one")
	second := f.put("a", "two, longer")
	deleted := f.put("b", "gone")
	tombstone, err := f.queueWriter().Delete([]byte("b"))
	require.NoError(t, err)
	expiring := f.expiring("c", time.Minute)
	c := f.ready()

	l, err := c.Locate([]byte("a"))
	require.NoError(t, err)
	require.Equal(t, Location{Address: second, StoredBytes: len("two, longer")}, l)
	_, err = c.Locate([]byte("b"))
	require.ErrorIs(t, err, docservice.ErrNotFound)
	_, err = c.Locate(nil)
	require.ErrorIs(t, err, docservice.ErrBadID)
	f.clock.advance(time.Minute)
	l, err = c.Locate([]byte("c"))
	require.NoError(t, err)
	require.Equal(t, expiring, l.Address)
	require.True(t, l.Expired)
	require.WithinDuration(t, f.clock.Now(), l.Expires, time.Second)

	versions := func(id string) (found []Version) {
		require.NoError(t, c.Versions(t.Context(), []byte(id), func(v Version) error {
			found = append(found, v)
			return nil
		}))
		return found
	}
	a := versions("a")
	require.Len(t, a, 2)
	require.Equal(t, []queue.Address{first, second}, []queue.Address{a[0].Address, a[1].Address})
	document, err := c.VersionDocument([]byte("> "), []byte("a"), a[0])
	require.NoError(t, err)
	require.Equal(t, "> one", string(document))
	_, err = c.VersionDocument(nil, []byte("b"), a[0])
	require.ErrorIs(t, err, queue.ErrUnavailable, "the version of another id")
	b := versions("b")
	require.Len(t, b, 2)
	require.Equal(t, []queue.Address{deleted, tombstone}, []queue.Address{b[0].Address, b[1].Address})
	require.Equal(t, []bool{false, true}, []bool{b[0].Deleted, b[1].Deleted})
	require.Empty(t, versions("never"))

	require.NoError(t, c.Close())
	_, err = c.Locate([]byte("a"))
	require.ErrorIs(t, err, ErrClosed)
}

// TestLocateBeforeTheEnd: an unread id is not "not found".
func TestLocateBeforeTheEnd(t *testing.T) {
	f := newMemFixture(t)
	c := f.open() // no segment has arrived
	_, err := c.Locate([]byte("a"))
	require.ErrorIs(t, err, docservice.ErrUnavailable)
}

// TestVisibleAfter checks the delay from append to index. Entries that were in the queue
// before the first end are not measured.
func TestVisibleAfter(t *testing.T) {
	f := newMemFixture(t)
	f.put("a", "document")
	f.clock.advance(13 * time.Minute)
	c := f.ready()
	require.Zero(t, c.Status().VisibleAfter)
	_, err := ask(c, func(s *store) (struct{}, error) {
		s.follower.committed(s.health.tailState().position, 1, f.clock.Now().Add(-5*time.Second), f.clock.Now().Add(-3*time.Second))
		return struct{}{}, nil
	})
	require.NoError(t, err)
	require.Equal(t, 3*time.Second, c.Status().VisibleAfter)
}
