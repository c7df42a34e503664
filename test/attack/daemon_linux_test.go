package attack

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
	"docstore/internal/freeport"
	"docstore/internal/testprocess"
	"docstore/queue"
)

const (
	largeDocument  = 16 << 20
	largeDocuments = 3
	smallDocument  = 1 << 10
	smallDocuments = 1000
)

// daemon is the docserviced under attack.
type daemon struct {
	addresses
	*testprocess.Command
}

// addresses are the addresses of a daemon's listeners.
type addresses struct{ Boxcar, HTTP, GRPC string }

// startDaemon starts a docserviced with large and small documents.
func startDaemon(t *testing.T) *daemon {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, testprocess.Build("-o", dir, "docstore/cmd/docserviced"))
	queueDir := filepath.Join(dir, "queue")
	fillQueue(t, queueDir)
	d := &daemon{addresses: addresses{Boxcar: freeport.Address(t), HTTP: freeport.Address(t), GRPC: freeport.Address(t)}}
	command := exec.Command(filepath.Join(dir, "docserviced"), "serve", "--collection", "jobs="+queueDir, "--data", filepath.Join(dir, "data"),
		"--boxcar", d.Boxcar, "--http", d.HTTP, "--grpc", d.GRPC, "--memory", "256MiB", "--quiet")
	d.Command = testprocess.Start(t, command)
	d.WaitUntil(t, "readiness", d.ready)
	return d
}

func fillQueue(t *testing.T, dir string) {
	writer, err := queue.OpenWriter(dir, nil)
	require.NoError(t, err)
	text := []byte(`"forklift operator wanted in Grünwald, shifts, own car", `)
	for i := range largeDocuments {
		_, err := writer.Append(fmt.Appendf(nil, "large-%d", i), bytes.Repeat(text, largeDocument/len(text)))
		require.NoError(t, err)
	}
	for i := range smallDocuments {
		_, err := writer.Append(smallID(i), bytes.Repeat([]byte{byte('a' + i%26)}, smallDocument))
		require.NoError(t, err)
	}
	require.NoError(t, writer.Close())
}

func smallID(i int) []byte { return fmt.Appendf(nil, "small-%d", i) }

func (d *daemon) ready() bool { return d.probe() == nil }

// probeClient probes over a new connection each time, as Kubernetes does.
var probeClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}

// probe returns an error unless the daemon is ready.
func (d *daemon) probe() error {
	response, err := probeClient.Get("http://" + d.HTTP + "/readyz")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("readyz: %s", response.Status)
	}
	return nil
}

// resident returns the peak resident memory of the daemon, including mapped files.
func (d *daemon) resident(t *testing.T) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.Process.Pid))
	require.NoError(t, err, "the daemon has ended")
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	value, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kilobytes, err := strconv.ParseInt(value, 10, 64)
	require.NoError(t, err, "%s", status)
	return kilobytes << 10
}

// processorTime returns the processor time that the daemon has used.
func (d *daemon) processorTime(t *testing.T) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.Process.Pid))
	require.NoError(t, err, "the daemon has ended")
	_, rest, _ := strings.Cut(string(stat), ") ") // the name of the program may contain blanks
	fields := strings.Fields(rest)
	const user, system, ticksPerSecond = 11, 12, 100
	ticks := 0
	for _, field := range []string{fields[user], fields[system]} {
		n, err := strconv.Atoi(field)
		require.NoError(t, err, "%s", stat)
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond
}

// goodClient reads documents over Boxcar, and probes the health over HTTP, continuously.
type goodClient struct {
	mu    sync.Mutex
	times []time.Duration // of the documents
	fails []error
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// startGoodClient starts a client with 4 callers.
func startGoodClient(t *testing.T, d *daemon) *goodClient {
	pool, err := boxcarrpc.NewPool(discovery.Static(d.Boxcar), &boxcarrpc.PoolOptions{
		Size: 8, Methods: docservice.IdempotentMethods(), CallTimeout: 20 * time.Second, SilenceTimeout: 10 * time.Second,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	require.NoError(t, pool.WaitReady(t.Context()))
	client := docservice.NewClient(pool, "jobs")
	ctx, cancel := context.WithCancel(context.Background())
	g := &goodClient{stop: cancel}
	for caller := range 4 {
		g.done.Go(func() {
			for i := caller; ctx.Err() == nil; i++ {
				begun := time.Now()
				document, err := client.Get(context.Background(), nil, string(smallID(i%smallDocuments)))
				if err == nil && len(document) != smallDocument {
					err = fmt.Errorf("a document of %d bytes", len(document))
				}
				g.note(time.Since(begun), err)
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	g.done.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			if err := d.probe(); err != nil {
				g.mu.Lock()
				g.fails = append(g.fails, err)
				g.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() { cancel(); g.done.Wait() })
	return g
}

func (g *goodClient) note(took time.Duration, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.times = append(g.times, took)
	if err != nil {
		g.fails = append(g.fails, err)
	}
}

// take returns the p99, the number of calls and the failures since the last take.
func (g *goodClient) take() (p99 time.Duration, calls int, fails []error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	slices.Sort(g.times)
	if calls = len(g.times); calls > 0 {
		p99 = g.times[calls*99/100]
	}
	fails = g.fails
	g.times, g.fails = nil, nil
	return p99, calls, fails
}
