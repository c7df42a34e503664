package e2e

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
	"docstore/internal/testprocess"
)

// TestRollingRestart restarts each daemon under load, first by SIGTERM alone, then after
// boxcar drain. No fetch fails, although the client declares no method idempotent, so requests
// that may have been processed are not retried.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	documents := corpus(t)[:500]
	queue := t.TempDir()
	sealSegment(t, queue, documents)
	var daemons []*daemon
	var addresses []string
	for range 3 {
		d := startDaemon(t, queue, t.TempDir())
		daemons = append(daemons, d)
		addresses = append(addresses, d.boxcar)
	}
	for _, d := range daemons {
		d.waitReady(t)
	}
	pool, err := boxcarrpc.NewPool(discovery.Static(addresses...), &boxcarrpc.PoolOptions{Size: 12})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	require.NoError(t, pool.WaitReady(t.Context()))
	client := docservice.NewClient(pool, collectionName)

	var stop atomic.Bool
	var fetched atomic.Int64
	var load sync.WaitGroup
	for worker := range 4 {
		load.Go(func() {
			for i := worker; !stop.Load(); i++ {
				d := documents[i%len(documents)]
				got, err := client.Get(context.Background(), nil, d.id)
				if err != nil || !bytes.Equal(got, d.line) {
					t.Errorf("%s: %q, %v", d.id, got, err)
					return
				}
				fetched.Add(1)
			}
		})
	}
	goesOn := func() {
		t.Helper()
		for n := fetched.Load(); fetched.Load() < n+500 && !t.Failed(); {
			time.Sleep(testprocess.PollInterval)
		}
	}
	boxcar := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(filepath.Join(binaries, "boxcar"), args...).CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	for _, drained := range []bool{false, true} {
		for _, d := range daemons {
			goesOn()
			if drained {
				require.Equal(t, d.boxcar+": drained\n", boxcar("drain", "--servers", d.boxcar))
				require.Contains(t, boxcar("slots", "--servers", d.boxcar), "draining, 0 slots")
				goesOn()
			}
			d.Stop(t)
			goesOn()
			d.restart(t)
			d.waitReady(t)
		}
	}
	last := daemons[2].boxcar
	boxcar("drain", "--servers", last)
	require.Equal(t, last+": gives out slots\n", boxcar("undrain", "--servers", last))
	goesOn()
	stop.Store(true)
	load.Wait()
	require.Zero(t, pool.Stats().Failed)
}
