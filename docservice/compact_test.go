package docservice

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/lsm"
	"docstore/queue"
)

// An index entry whose document compaction has left out is not found once the
// index has read what superseded it, and unavailable before. It is no damage.
func TestVersionThatIsGone(t *testing.T) {
	f := newMemFixture(t)
	f.put("1", "one")
	f.put("2", "two")
	f.seal()
	c := f.ready()
	old, err := c.index.Get(nil, []byte("1"))
	require.NoError(t, err)
	stale, err := decodeIndexEntry(old)
	require.NoError(t, err)
	require.NoError(t, c.WaitFor(soon(t), f.put("1", "one, changed")))
	f.seal()
	_, err = queue.Compact(context.Background(), f.queueDir, &queue.CompactOptions{FS: f.fs, MaxDead: 0.01, DeleteOriginals: true})
	require.NoError(t, err)
	require.NoError(t, c.Close())

	c = f.ready()
	requireDocument(t, c, "1", "one, changed")
	requireDocument(t, c, "2", "two")
	document, _, err := c.fetch(nil, []byte("1"), stale, 0)
	require.NoError(t, err, "the index knows a newer version")
	require.Equal(t, "one, changed", string(document))

	var batch lsm.Batch
	require.NoError(t, batch.Set([]byte("1"), old))
	require.NoError(t, c.index.Apply(&batch))
	requireNone(t, c, "1", ErrNotFound)
	c.mu.Lock()
	end := c.mu.tail.position
	c.mu.tail.position.Next = queue.Address{Segment: 2}
	c.mu.Unlock()
	requireNone(t, c, "1", ErrUnavailable)
	require.Empty(t, c.Status().Faults)
	c.mu.Lock()
	c.mu.tail.position = end
	c.mu.Unlock()
}
