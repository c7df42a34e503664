package files

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"docstore/ingest"
	"docstore/ingest/records"
	"docstore/internal/vfs"

	"github.com/stretchr/testify/require"
)

func write(t testing.TB, path, text string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestFileWatcher: on Linux the kernel reports that a file has grown or was replaced;
// otherwise the file is polled.
func TestFileWatcher(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	often := newFileWatcher(vfs.OS, path, time.Millisecond)
	defer often.close()
	require.NoError(t, often.wait(t.Context()))

	seldom := newFileWatcher(vfs.OS, path, 24*time.Hour)
	defer seldom.close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, seldom.wait(ended), context.Canceled)
	if runtime.GOOS != "linux" {
		return
	}
	write(t, path, "one")
	require.NoError(t, seldom.wait(t.Context()))
	require.ErrorIs(t, seldom.wait(ended), context.Canceled)
	write(t, path+".new", "two")
	require.NoError(t, os.Rename(path+".new", path))
	require.NoError(t, seldom.wait(t.Context()))

	missing := newFileWatcher(vfs.OS, filepath.Join(path, "below a file"), time.Millisecond)
	defer missing.close()
	require.NoError(t, missing.wait(t.Context()))
}

// TestRotatedBeforeItIsRead: the log is rotated between the start of append, which may wait for
// other things, and the first read.
func TestRotatedBeforeItIsRead(t *testing.T) {
	for _, rotations := range []int{1, 2} {
		log := filepath.Join(t.TempDir(), "log")
		write(t, log, "{\"id\":0}\n")
		opener, err := NewOpener([]string{log}, Options{Format: records.FormatNDJSON, Follow: true})
		require.NoError(t, err)
		for n := range rotations {
			if n > 0 {
				require.NoError(t, os.Rename(log+".1", log+".2"))
			}
			require.NoError(t, os.Rename(log, log+".1"))
			write(t, log, fmt.Sprintf("{\"id\":%d}\n", n+1))
		}
		s, err := opener.Open(t.Context(), nil)
		require.NoError(t, err)
		for id := range rotations + 1 {
			b, err := s.Next(t.Context())
			require.NoError(t, err)
			require.Len(t, b.Records, 1)
			require.Equal(t, fmt.Sprintf("{\"id\":%d}", id), string(b.Records[0].Document))
		}
		require.NoError(t, s.Close())
	}
}

// firstBatch returns a function that opens a followed log as append does when it starts, and the first
// batch.
func firstBatch(t *testing.T, log string) (open func() *Opener, b *ingest.Batch) {
	t.Helper()
	open = func() *Opener {
		opener, err := NewOpener([]string{log}, Options{Format: records.FormatNDJSON, Follow: true})
		require.NoError(t, err)
		return opener
	}
	s, err := open().Open(t.Context(), nil)
	require.NoError(t, err)
	b, err = s.Next(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Close())
	return open, b
}

// TestRotatedAgainBeforeItIsRead: a file that was rotated while append did not run is rotated
// again between the start of append and the first read.
func TestRotatedAgainBeforeItIsRead(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	write(t, log, "{\"id\":0}\n{\"id\":1}\n")
	open, b := firstBatch(t, log)
	cursor := b.AppendCursor(nil, 0)

	require.NoError(t, os.Rename(log, log+".1"))
	write(t, log, "{\"id\":2}\n{\"id\":3}\n")
	s, err := open().Open(t.Context(), cursor)
	require.NoError(t, err)
	require.NoError(t, os.Rename(log+".1", log+".2"))
	require.NoError(t, os.Rename(log, log+".1"))
	write(t, log, "{\"id\":4}\n")
	for id := 1; id <= 4; {
		b, err := s.Next(t.Context())
		require.NoError(t, err)
		for _, r := range b.Records {
			require.Equal(t, fmt.Sprintf("{\"id\":%d}", id), string(r.Document))
			id++
		}
	}
	require.NoError(t, s.Close())
}

// A shard had no record when append ended, and the log was rotated: it gets its lines of the renamed file.
func TestRotatedBeforeAShardHasARecord(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	write(t, log, "{\"id\":0}\n{\"id\":1}\n{\"id\":2}\n")
	open, b := firstBatch(t, log)
	cursors := [][]byte{b.AppendCursor(nil, 1), nil, b.AppendCursor(nil, 0)}
	start, err := open().Earliest(cursors)
	require.NoError(t, err)
	require.Empty(t, start, "the log has its name")

	for range 2 {
		require.NoError(t, os.Rename(log, log+".1"))
		write(t, log, "{\"id\":3}\n")
		opener := open()
		start, err := opener.Earliest(cursors)
		require.NoError(t, err)
		s, err := opener.Open(t.Context(), start)
		require.NoError(t, err)
		for id := 0; id <= 3; {
			b, err := s.Next(t.Context())
			require.NoError(t, err)
			for i, r := range b.Records {
				require.Equal(t, fmt.Sprintf("{\"id\":%d}", id), string(r.Document))
				position, err := opener.Position(cursors[0])
				require.NoError(t, err)
				require.Equal(t, id <= 1, b.Included(position, i))
				id++
			}
		}
		require.NoError(t, s.Close())
		require.NoError(t, os.Rename(log+".1", log)) // once more, with the start itself as a cursor
		cursors[1] = start
	}
}

// TestRemovedBeforeItIsRead: a log that was replaced and is gone is an error, and not passed over.
func TestRemovedBeforeItIsRead(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	write(t, log, "{\"id\":0}\n")
	opener, err := NewOpener([]string{log}, Options{Format: records.FormatNDJSON, Follow: true})
	require.NoError(t, err)
	require.NoError(t, os.Rename(log, filepath.Join(t.TempDir(), "elsewhere")))
	write(t, log, "{\"id\":1}\n")
	s, err := opener.Open(t.Context(), nil)
	require.NoError(t, err)
	_, err = s.Next(t.Context())
	require.ErrorContains(t, err, "was replaced before it was read")
	require.NoError(t, s.Close())
}
