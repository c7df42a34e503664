package main

import (
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// docs/metrics.md lists exactly the metrics of the daemon.
func TestMetricsPageIsComplete(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(page), "<!-- docserviced -->")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "<!-- end -->")
	listed := map[string]bool{}
	for _, name := range regexp.MustCompile("(?m)^- `(docstore_[a-z_]+)").FindAllStringSubmatch(section, -1) {
		listed[name[1]] = true
	}
	there := map[string]bool{}
	descs := make(chan *prometheus.Desc, 1000)
	newMetrics(&daemon{}).registry.Describe(descs)
	close(descs)
	for desc := range descs {
		name := regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(desc.String())[1]
		if strings.HasPrefix(name, "docstore_") {
			there[name] = true
		}
	}
	require.Equal(t, there, listed)
}

// The share of the segments in memory is exported once a document was read from them, and
// only on Linux.
func TestResidencyMetrics(t *testing.T) {
	queueDir := t.TempDir()
	fill(t, queueDir, "a", `{"id":"a"}`)
	d, _ := startTestDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	page := func() string { return get(d.http.Handler, "/metrics").Body.String() }
	require.NotContains(t, page(), "docstore_resident_ratio{")
	if runtime.GOOS != "linux" {
		require.NotContains(t, page(), "docstore_cold_read_seconds")
		return
	}
	for _, part := range []string{"index", "queue"} {
		require.Contains(t, page(), `docstore_cold_read_seconds_count{collection="jobs",part="`+part+`"} 0`)
		require.Contains(t, page(), `docstore_cold_read_seconds_bucket{collection="jobs",part="`+part+`",le="6.4e-05"} 0`)
	}
	require.Equal(t, 200, get(d.http.Handler, "/documents/jobs/a").Code)
	require.Contains(t, page(), `docstore_resident_ratio{collection="jobs",part="queue"} `)
}
