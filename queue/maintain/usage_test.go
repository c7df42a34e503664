package maintain

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/internal/segment"

	"github.com/stretchr/testify/require"
)

// TestUsageBytesPerID compares the memory of the map with usageBytesPerID, at the least
// favorable number of ids.
func TestUsageBytesPerID(t *testing.T) {
	const ids = 7<<16 + 1000 // just after the tables were split
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	newest := make(map[idHash]newestVersion)
	for i := range ids {
		var id idHash
		segment.Little.PutUint64(id[:], uint64(i)*0x9e3779b97f4a7c15)
		newest[id] = newestVersion{}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, (int64(after.HeapAlloc)-int64(before.HeapAlloc))/ids, int64(usageBytesPerID))
	runtime.KeepAlive(newest)
}

// TestUsageIgnoresLaterEntries: entries appended after the first pass do not count in
// later passes.
func TestUsageIgnoresLaterEntries(t *testing.T) {
	mem := vfs.NewMem()
	w, err := queue.OpenWriter("queue", &queue.WriterOptions{FS: mem, Codec: "none"})
	require.NoError(t, err)
	defer w.Close()
	put := func(document string) {
		for i := range 10 {
			_, err := w.Append(fmt.Append(nil, i), []byte(document))
			require.NoError(t, err)
		}
		require.NoError(t, w.Flush())
	}
	put("old")
	r, err := queue.OpenReader("queue", &queue.ReaderOptions{FS: mem})
	require.NoError(t, err)
	defer r.Close()
	u := usageScan{now: time.Now(), passes: 2}
	require.NoError(t, u.read(t.Context(), r))
	put("newer")
	u.pass = 1
	require.NoError(t, u.read(t.Context(), r))
	require.Equal(t, []segmentUsage{{Usage: Usage{Segment: 1, Documents: 10, StoredBytes: 30, LiveDocuments: 10, LiveBytes: 30}}}, u.segments)
}
