package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
	"docstore/internal/freeport"
	"docstore/internal/testprocess"
	"docstore/internal/testseed"
)

// memoryBeyondBudget is the anonymous memory that a daemon may use in addition to --memory, as
// stated in docs/operating.md: Go runtime, stacks and garbage.
const memoryBeyondBudget = 128 << 20

// TestMemoryStaysWithinTheBudget serves 8 collections that receive appends, batch fetches,
// HTTP fetches and scans, with enough keys to fill the memtables several times. The anonymous
// memory of the daemon stays below --memory plus memoryBeyondBudget.
func TestMemoryStaysWithinTheBudget(t *testing.T) {
	t.Parallel()
	const (
		collections  = 8
		rounds       = 4
		perRound     = 15_000
		idBytes      = 500
		budget       = 256 << 20
		pollInterval = 20 * time.Millisecond
	)
	random := testseed.Rand(t)
	root := t.TempDir()
	d := &daemon{boxcar: freeport.Address(t), http: freeport.Address(t)}
	d.args = []string{"serve", "--data", filepath.Join(root, "index"), "--boxcar", d.boxcar, "--http", d.http, "--memory", "256MiB"}
	queueOf := func(n int) string { return filepath.Join(root, fmt.Sprint("queue-", n)) }
	for n := range collections {
		require.NoError(t, os.Mkdir(queueOf(n), 0o755))
		d.args = append(d.args, "--collection", fmt.Sprintf("c%d=%s", n, queueOf(n)))
	}
	d.Command = start(t, nil, "docserviced", d.args...)

	pool, err := boxcarrpc.NewPool(discovery.Static(d.boxcar), &boxcarrpc.PoolOptions{Methods: docservice.IdempotentMethods()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	var peak, appended, answered atomic.Int64
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		for ctx.Err() == nil {
			peak.Store(max(peak.Load(), anonymousBytes(d.Process.Pid)))
			time.Sleep(pollInterval)
		}
	})
	idOf := func(n int) string { return fmt.Sprintf("%0*d", idBytes, n) }
	for n := range collections {
		running.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 0))
			client := docservice.NewClient(pool, fmt.Sprint("c", n))
			ids := make([]string, 100)
			for ctx.Err() == nil {
				for i := range ids {
					ids[i] = idOf(random.IntN(rounds * perRound))
				}
				// Ids that are not indexed yet are unavailable.
				_ = client.GetMany(ctx, ids, func(_ int, document []byte, err error) error {
					if err == nil {
						answered.Add(1)
					}
					return nil
				})
				_, _ = client.Plain().Get(ctx, nil, ids[0])
			}
		})
	}
	codecs := []string{"zstd", "s2", "none", "zstd"}
	for range rounds {
		var updaters []*testprocess.Command
		for n := range collections {
			var lines bytes.Buffer
			for range perRound {
				fmt.Fprintf(&lines, `{"id":%q,"title":"Lift operator %d","text":%q}`+"\n",
					idOf(random.IntN(rounds*perRound)), random.IntN(1000), strings.Repeat(strconv.Itoa(random.IntN(1000)), 20))
			}
			updaters = append(updaters, start(t, &lines, "docstore-updater", "append", "--queue", queueOf(n), "--quiet",
				"--codec", codecs[n%len(codecs)], "--segment-size", "2MiB"))
		}
		for _, updater := range updaters {
			updater.WaitExit(t)
			appended.Add(perRound)
		}
	}
	d.waitReady(t)
	for answered.Load() < 100_000 {
		time.Sleep(pollInterval)
	}
	cancel()
	running.Wait()
	t.Logf("%d entries, %d answers, peak %d MiB", appended.Load(), answered.Load(), peak.Load()>>20)
	require.LessOrEqual(t, peak.Load(), int64(budget+memoryBeyondBudget))
	d.Stop(t)
}

// anonymousBytes returns the anonymous memory of a process, 0 if it has exited.
func anonymousBytes(pid int) int64 {
	content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(content), "RssAnon:")
	field, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kilobytes, _ := strconv.ParseInt(field, 10, 64)
	return kilobytes << 10
}
