package server

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/servertest"
)

// The share of the segments in memory is exported once a document was read from them, and
// only on Linux.
func TestResidencyMetrics(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	d, _ := startTestDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	page := func() string { return servertest.Get(d.http.Handler, "/metrics").Body.String() }
	require.NotContains(t, page(), "docstore_resident_ratio{")
	if runtime.GOOS != "linux" {
		require.NotContains(t, page(), "docstore_cold_read_seconds")
		return
	}
	for _, part := range []string{"index", "queue"} {
		require.Contains(t, page(), `docstore_cold_read_seconds_count{collection="jobs",part="`+part+`"} 0`)
		require.Contains(t, page(), `docstore_cold_read_seconds_bucket{collection="jobs",part="`+part+`",le="6.4e-05"} 0`)
	}
	require.Equal(t, 200, servertest.Get(d.http.Handler, "/documents/jobs/a").Code)
	require.Contains(t, page(), `docstore_resident_ratio{collection="jobs",part="queue"} `)
}
