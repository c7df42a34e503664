package server

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"docstore/docservice/readiness"
	"docstore/docservice/server/livepage"
	"docstore/internal/canary"
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

// The newest canary has an age, until a day without one has passed, and is on the page.
func TestCanaryMetrics(t *testing.T) {
	for age, known := range map[time.Duration]bool{time.Minute: true, 25 * time.Hour: false} {
		sent := canary.New(canary.AppendPrefix+"0", time.Now().Add(-age))
		document, err := sent.Encode()
		require.NoError(t, err)
		queueDir := t.TempDir()
		servertest.Fill(t, queueDir, sent.ID, string(document))
		d, _ := startTestDaemon(t, testOptions(t, queueDir))
		waitReady(t, d)
		page := servertest.Get(d.http.Handler, "/metrics").Body.String()
		require.Contains(t, page, `docstore_canary_seconds_count{collection="jobs"} 0`)
		if known {
			require.Regexp(t, `docstore_canary_age_seconds\{collection="jobs"\} [6-9]\d(\.\d+)?\n`, page)
		} else {
			require.NotContains(t, page, "docstore_canary_age_seconds")
		}
		require.Contains(t, servertest.Get(d.http.Handler, "/").Body.String(), "newest canary</dt>")
	}
}

// The free space is exported although the queue cannot be listed.
func TestDiskMetricsWithoutStatistics(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	d, _ := startTestDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	page := servertest.Get(d.http.Handler, "/metrics").Body.String()
	require.Contains(t, page, `docstore_queue_segments{collection="jobs"}`)
	require.NoError(t, os.RemoveAll(queueDir))
	require.NoError(t, os.WriteFile(queueDir, nil, 0o600))
	page = servertest.Get(d.http.Handler, "/metrics").Body.String()
	require.NotContains(t, page, `docstore_queue_segments{collection="jobs"}`)
	require.Contains(t, page, `docstore_disk_free_bytes{collection="jobs",part="index"}`)
}

// emptyColumn is a server of a replica set that has not opened the shards of the placement.
type emptyColumn struct {
	Held
	ready bool
}

func (c emptyColumn) Name() string { return "jobs" }

func (c emptyColumn) Shards() []Shard { return nil }

func (c emptyColumn) Column() *livepage.Column {
	if c.ready {
		return &livepage.Column{Report: readiness.Report{State: readiness.Ready}}
	}
	return &livepage.Column{Report: readiness.Report{State: readiness.Fetching}}
}

func (c emptyColumn) Describe(to chan<- *prometheus.Desc) { to <- ready.Desc }

func (c emptyColumn) Collect(to chan<- prometheus.Metric) { collectReadiness(to, c) }

// The alert DocstoreNotReady did not fire for a server of a replica set that had no shard: there was
// no docstore_collection_ready.
func TestReadinessWithoutShards(t *testing.T) {
	for _, isReady := range []bool{false, true} {
		registry := prometheus.NewRegistry()
		require.NoError(t, registry.Register(emptyColumn{ready: isReady}))
		families, err := registry.Gather()
		require.NoError(t, err)
		require.Len(t, families, 1)
		require.Len(t, families[0].GetMetric(), 1)
		require.Equal(t, isReady, families[0].GetMetric()[0].GetGauge().GetValue() == 1)
	}
}
