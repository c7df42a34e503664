package docserviced

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/discovery/byname"
	"docstore/internal/freeport"
	"docstore/internal/servertest"
)

// A daemon is registered while it serves, and clients find it by the same name.
func TestServeRegistersItself(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", "document")
	seed, boxcar := freeport.Address(t), freeport.Address(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan result)
	go func() {
		ended <- run(ctx, "serve", "--collection", "jobs="+queueDir, "--data", t.TempDir(), "--boxcar", boxcar, "--http", "127.0.0.1:0",
			"--discovery", "gossip://"+seed+"?bind="+seed, "--weight", "2", "--zone", "eu-1a", "--quiet")
	}()
	finding, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	servers, err := byname.First(finding, "gossip://"+seed, nil)
	require.NoError(t, err)
	require.Equal(t, []discovery.Server{{Number: 0, Address: boxcar, Weight: 2, Zone: "eu-1a"}}, servers)
	cancel()
	r := <-ended
	require.Equal(t, 0, r.status, r.stderr)
}

func TestServeRefusesBadDiscovery(t *testing.T) {
	for _, flags := range [][]string{
		{"--discovery", "127.0.0.1:7070"}, {"--discovery", "etcd://127.0.0.1:2379"}, {"--advertise", "a:1"}, {"--weight", "0"},
	} {
		r := run(t.Context(), append([]string{"serve", "--collection", "jobs=" + t.TempDir(), "--data", t.TempDir()}, flags...)...)
		require.Equal(t, 2, r.status, r.stderr)
	}
}
