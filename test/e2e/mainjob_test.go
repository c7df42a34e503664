package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
)

const (
	// segmentSize splits the corpus into several segments.
	segmentSize = "8MiB"
	// callers is the number of concurrent fetches; the pool has more slots than that.
	callers  = 16
	poolSize = 2 * callers
	// fetchesAroundKill is the number of fetches before, and after, the kill of a daemon.
	fetchesAroundKill = 20_000
)

// TestMainJob follows documents from end to end: append, two copies by rsync, two daemons,
// fetches through one Boxcar pool, updates, deletes, and the kill and restart of a daemon.
func TestMainJob(t *testing.T) {
	documents := corpus(t)
	queue := t.TempDir()
	replicas := []*replica{startReplica(t, queue), startReplica(t, queue)}
	var daemons []*daemon
	for _, r := range replicas {
		daemons = append(daemons, startDaemon(t, r.target, t.TempDir()))
	}

	// The second half is written after the first is served, so rsync and the daemons read a
	// queue that grows.
	feed, input := io.Pipe()
	updater := start(t, feed, "docstore-updater", "append", "--queue", queue,
		"--segment-size", segmentSize, "--flush-interval", "50ms")
	half := len(documents) / 2
	write(t, input, documents[:half])
	for _, d := range daemons {
		d.waitDocument(t, documents[half-1].id, documents[half-1].line)
	}
	write(t, input, documents[half:])
	require.NoError(t, input.Close())
	updater.WaitExit(t)

	sealed, err := filepath.Glob(filepath.Join(queue, "*.seg"))
	require.NoError(t, err)
	require.Greater(t, len(sealed), 1, "the corpus should fill several segments")

	last := documents[len(documents)-1]
	for _, d := range daemons {
		d.waitDocument(t, last.id, last.line)
		d.waitReady(t)
	}
	client := newClient(t, daemons...)
	want := expected(documents)
	compareAll(t, client, want)
	compareBatches(t, client, want)

	changes := change(documents, want)
	path := filepath.Join(t.TempDir(), "changes.ndjson")
	require.NoError(t, os.WriteFile(path, ndjson(changes), 0o644))
	start(t, nil, "docstore-updater", "append", "--queue", queue, path).WaitExit(t)
	end := changes[len(changes)-1]
	for _, d := range daemons {
		d.waitDocument(t, end.id, want[end.id])
	}
	compareAll(t, client, want)

	load := startLoad(t, client, want)
	load.waitFetches(fetchesAroundKill)
	daemons[1].Kill()
	load.waitFetches(load.fetched.Load() + fetchesAroundKill)
	load.stop(t)
	daemons[1].restart(t)
	daemons[1].waitReady(t)
	compareAll(t, newClient(t, daemons[1]), want)
	compareAll(t, client, want)

	for _, r := range replicas {
		r.stop()
	}
	for _, d := range daemons {
		d.Stop(t)
	}
}

func write(t *testing.T, input io.Writer, documents []document) {
	t.Helper()
	_, err := input.Write(ndjson(documents))
	require.NoError(t, err)
}

// expected maps each id to its document; nil means not found.
func expected(documents []document) map[string][]byte {
	want := make(map[string][]byte, len(documents)+1)
	for _, d := range documents {
		want[d.id] = d.line
	}
	want["no-such-package"] = nil
	return want
}

// change updates one document in ten, deletes one in ten, and records the expected answers in
// want.
func change(documents []document, want map[string][]byte) []document {
	var changes []document
	for i := 0; i < len(documents); i += 10 {
		updated := document{id: documents[i].id}
		updated.line = append([]byte(`{"updated":true,`), documents[i].line[1:]...)
		want[updated.id] = updated.line
		changes = append(changes, updated)

		if i+1 < len(documents) {
			deleted := document{id: documents[i+1].id}
			deleted.line = fmt.Appendf(nil, `{"id":%q,"_delete":true}`, deleted.id)
			want[deleted.id] = nil
			changes = append(changes, deleted)
		}
	}
	return changes
}

// newClient returns a client with one pool for the daemons.
func newClient(t *testing.T, daemons ...*daemon) *docservice.Client {
	t.Helper()
	var addresses []string
	for _, d := range daemons {
		addresses = append(addresses, d.boxcar)
	}
	pool, err := boxcarrpc.NewPool(discovery.Static(addresses...), &boxcarrpc.PoolOptions{
		Size:    poolSize,
		Methods: docservice.IdempotentMethods(),
	})
	require.NoError(t, err)
	t.Cleanup(func() { pool.Close() })
	require.NoError(t, pool.WaitReady(t.Context()))
	return docservice.NewClient(pool, collectionName)
}

// compareAll fetches all ids concurrently and compares the bytes.
func compareAll(t *testing.T, client *docservice.Client, want map[string][]byte) {
	t.Helper()
	started := time.Now()
	ids := make(chan string, callers)
	var workers sync.WaitGroup
	for range callers {
		workers.Go(func() {
			var buffer []byte
			for id := range ids {
				var wrong string
				if buffer, wrong = fetch(client, buffer, id, want[id]); wrong != "" {
					t.Error(wrong)
				}
			}
		})
	}
	for id := range want {
		ids <- id
	}
	close(ids)
	workers.Wait()
	t.Logf("%d documents fetched one by one by %d callers, %.0f/s",
		len(want), callers, float64(len(want))/time.Since(started).Seconds())
	if t.Failed() {
		t.FailNow()
	}
}

// fetch gets one document and describes a wrong answer; "" means correct.
func fetch(client *docservice.Client, buffer []byte, id string, want []byte) (got []byte, wrong string) {
	got, err := client.Get(context.Background(), buffer[:0], id)
	switch {
	case want == nil && errors.Is(err, docservice.ErrNotFound):
		return got, ""
	case want != nil && err == nil && bytes.Equal(got, want):
		return got, ""
	}
	return got, fmt.Sprintf("%s: got %.100q, error %v; want %.100q", id, got, err, want)
}

// compareBatches fetches all ids in batches of the size of a result page.
func compareBatches(t *testing.T, client *docservice.Client, want map[string][]byte) {
	t.Helper()
	const page = 50
	var ids []string
	compare := func() {
		answered := 0
		err := client.GetMany(context.Background(), ids, func(i int, document []byte, err error) error {
			answered++
			if want[ids[i]] == nil {
				require.ErrorIs(t, err, docservice.ErrNotFound, ids[i])
				return nil
			}
			require.NoError(t, err, ids[i])
			require.Equal(t, string(want[ids[i]]), string(document))
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, len(ids), answered)
		ids = ids[:0]
	}
	for id := range want {
		if ids = append(ids, id); len(ids) == page {
			compare()
		}
	}
	compare()
}

// load runs callers that fetch random documents until stopped. Any answer other than the right
// document fails the test.
type load struct {
	fetched atomic.Int64
	stopped atomic.Bool
	workers sync.WaitGroup
	failed  atomic.Pointer[string]
}

func startLoad(t *testing.T, client *docservice.Client, want map[string][]byte) *load {
	t.Helper()
	ids := make([]string, 0, len(want))
	for id := range want {
		ids = append(ids, id)
	}
	l := &load{}
	for i := range callers {
		l.workers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 0))
			var buffer []byte
			for !l.stopped.Load() {
				id := ids[random.IntN(len(ids))]
				var wrong string
				if buffer, wrong = fetch(client, buffer, id, want[id]); wrong != "" {
					l.failed.CompareAndSwap(nil, &wrong)
					l.stopped.Store(true)
				}
				l.fetched.Add(1)
			}
		})
	}
	t.Cleanup(func() { l.stopped.Store(true); l.workers.Wait() })
	return l
}

// waitFetches waits for the total number of fetches, or for a failure.
func (l *load) waitFetches(n int64) {
	for l.fetched.Load() < n && !l.stopped.Load() {
		time.Sleep(time.Millisecond)
	}
}

func (l *load) stop(t *testing.T) {
	t.Helper()
	l.stopped.Store(true)
	l.workers.Wait()
	if wrong := l.failed.Load(); wrong != nil {
		require.FailNow(t, "a request failed", *wrong)
	}
}
