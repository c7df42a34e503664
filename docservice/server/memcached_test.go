package server

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice/memcached/memcachedtest"
	"docstore/internal/host"
	"docstore/internal/servertest"
)

// A daemon with --memcached loads a real server and serves from it, and keeps serving when
// it is killed.
func TestMemcached(t *testing.T) {
	server := memcachedtest.Start(t)
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`, "b", `{"id":"b"}`)
	o := testOptions(t, queueDir)
	o.Memcached = []string{server.Address}
	d, _ := startTestDaemon(t, o)
	waitReady(t, d)
	requireMetric := func(metric string) {
		t.Helper()
		require.Eventually(t, func() bool {
			return strings.Contains(servertest.Get(d.http.Handler, "/metrics").Body.String(), "docstore_memcached_"+metric+"\n")
		}, 20*time.Second, 5*time.Millisecond, metric)
	}
	requireMetric(`servers{state="up"} 1`)
	require.Eventually(t, func() bool { // on a busy machine loads may be dropped or late
		require.Equal(t, `{"id":"a"}`, servertest.Get(d.http.Handler, "/documents/jobs/a").Body.String())
		return !strings.Contains(servertest.Get(d.http.Handler, "/metrics").Body.String(), `docstore_memcached_asked_total{answer="hit"} 0`+"\n")
	}, 20*time.Second, 5*time.Millisecond, "documents are served from memcached")
	server.Kill()
	for i := range 10 {
		require.Equal(t, `{"id":"b"}`, servertest.Get(d.http.Handler, "/documents/jobs/b").Body.String(), fmt.Sprint(i))
	}
	requireMetric(`servers{state="away"} 1`)
}

// The servers of memcached are reached through the host.
func TestMemcachedThroughHost(t *testing.T) {
	memory := memcachedtest.StartMemory(t)
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	o := testOptions(t, queueDir)
	machine := *host.OS
	machine.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != "192.0.2.1:11211" {
			t.Errorf("dialed %s", address)
		}
		return host.OS.Dial(ctx, network, memory.Address)
	}
	o.Host, o.Memcached = &machine, []string{"192.0.2.1:11211"}
	d, _ := startTestDaemon(t, o)
	require.Eventually(t, func() bool { return d.collections.Cache.Stats().Loaded == 1 }, 20*time.Second, 5*time.Millisecond)
}
