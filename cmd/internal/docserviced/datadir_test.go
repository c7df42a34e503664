package docserviced

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/docservice/server"
)

// Data and queue directories that contain each other are refused.
func TestDataAndQueuesDoNotOverlap(t *testing.T) {
	dir := t.TempDir()
	queueDir := filepath.Join(dir, "queue", "jobs")
	require.NoError(t, os.MkdirAll(queueDir, 0o777))
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(queueDir, link))
	serveWith := func(collection, data string) result {
		return run(t.Context(), "serve", "--collection", collection, "--data", data, "--boxcar", "127.0.0.1:0", "--http", "127.0.0.1:0")
	}
	for _, c := range []struct{ collection, data string }{
		{"jobs=" + queueDir, queueDir},
		{"jobs=" + queueDir, filepath.Join(queueDir, "index")},
		{"jobs=" + queueDir, filepath.Join(link, "new", "index")},
		{"jobs=" + link, filepath.Join(queueDir, "index")},
		{"jobs=" + queueDir, filepath.Join(dir, "queue")}, // the index would be inside the queue
		{"queue=" + queueDir, dir},                        // the queue would be inside the index
	} {
		r := serveWith(c.collection, c.data)
		require.Equal(t, cli.ExitFailure, r.status, c)
		require.Contains(t, r.stderr, "data directory "+c.data+" and queue directory ")
		require.Contains(t, r.stderr, "overlap; choose another --data")
	}
	entries, err := os.ReadDir(queueDir)
	require.NoError(t, err)
	require.Empty(t, entries)
	for _, data := range []string{filepath.Join(dir, "index"), dir, queueDir + "-index"} {
		require.NoError(t, server.RequireQueues([]server.Collection{{Name: "jobs", Source: queueDir}}, data), data)
	}
}
