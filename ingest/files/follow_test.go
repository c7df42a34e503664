package files

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

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
