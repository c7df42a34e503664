package collection

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
)

// damageBeneath flips a bit of a file in place.
func damageBeneath(t *testing.T, path string, at int64) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	b := make([]byte, 1)
	_, err = file.ReadAt(b, at)
	require.NoError(t, err)
	b[0] ^= 0x10
	_, err = file.WriteAt(b, at)
	require.NoError(t, err)
	require.NoError(t, file.Close())
}

// TestScrubFindsDamagedIndex: without any lookup, damage in a table or in the manifest
// leads to a rebuilt index.
func TestScrubFindsDamagedIndex(t *testing.T) {
	random := testseed.Rand(t)
	for _, extension := range []string{".table", ""} {
		f := newFixture(t, vfs.OS, t.TempDir())
		f.options.ScrubInterval, f.options.ScrubBytesPerSecond = time.Millisecond, 1<<30
		last := f.putMany("doc", 3000)
		c := f.ready()
		require.NoError(t, c.serving.Load().index.Flush())
		waitFor(t, c, "all of it was found sound", func(s Status) bool { return s.Scrub.Bytes > 0 && s.Scrub.Passes > 0 })
		require.Equal(t, f.clock.Now().UnixMilli(), c.Status().Scrub.Ended.UnixMilli())
		require.Empty(t, c.Status().Faults)

		path := filepath.Join(firstIndex.path(f.dir), "MANIFEST")
		if extension != "" {
			path = f.indexFiles(firstIndex, extension)[0]
		}
		info, err := os.Stat(path)
		require.NoError(t, err)
		damageBeneath(t, path, random.Int64N(info.Size()))
		waitFor(t, c, "the index was rebuilt", func(s Status) bool {
			return c.serving.Load().number == firstIndex.next() && s.Ready && len(s.Faults) == 0 && s.Replacement == nil
		})
		require.NoError(t, c.WaitFor(soon(t), last))
		for i := range 3000 {
			id := fmt.Sprint("doc-", i)
			requireDocument(t, c, id, documentOf(id))
		}
	}
}

// TestScrubsAreSerialized: a pass waits for that of another collection with the same
// semaphore.
func TestScrubsAreSerialized(t *testing.T) {
	f := newMemFixture(t)
	f.options.ScrubSemaphore = make(chan struct{}, 1)
	f.put("id", "document")
	s := f.ready().serving.Load()
	f.options.ScrubSemaphore <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.scrubber.scrub(ctx), context.Canceled)
	<-f.options.ScrubSemaphore
	require.NoError(t, s.scrubber.scrub(t.Context()))
	require.Empty(t, f.options.ScrubSemaphore)
}
