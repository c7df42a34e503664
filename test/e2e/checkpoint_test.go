package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testprocess"
)

// TestCheckpointOfARunningDaemon creates a serving machine from checkpoints that are taken
// while the daemon indexes and serves requests. The new machine does not read entries that
// were indexed before its checkpoint began.
func TestCheckpointOfARunningDaemon(t *testing.T) {
	documents := corpus(t)
	queue, data := t.TempDir(), t.TempDir()
	first := startDaemon(t, queue, data)
	feed, input := io.Pipe()
	updater := start(t, feed, "docstore-updater", "append", "--queue", queue, "--segment-size", segmentSize, "--flush-interval", "10ms")
	quarter := len(documents) / 4
	write(t, input, documents[:quarter])
	first.waitDocument(t, documents[quarter-1].id, documents[quarter-1].line)
	load := startLoad(t, newClient(t, first), expected(documents[:quarter]))

	var checkpoint string
	indexed := 0 // lower bound at the start of the last checkpoint
	for i := 1; i < 4; i++ {
		indexed = i * quarter
		part := documents[indexed:min(indexed+quarter, len(documents))]
		written := make(chan error)
		go func() {
			_, err := input.Write(ndjson(part))
			written <- err
		}()
		checkpoint = filepath.Join(t.TempDir(), "checkpoint")
		start(t, nil, "docserviced", "checkpoint", "--data", data, checkpoint).WaitExit(t)
		require.NoError(t, <-written)
		last := part[len(part)-1]
		first.waitDocument(t, last.id, last.line)
	}
	write(t, input, documents[4*quarter:])
	require.NoError(t, input.Close())
	updater.WaitExit(t)
	load.stop(t)
	first.waitReady(t)

	newQueue, newData := copied(t, queue), copied(t, checkpoint)
	start(t, nil, "docserviced", "check", "--data", newData).WaitExit(t)
	second := startDaemon(t, newQueue, newData)
	second.waitReady(t)
	second.poll(t, "/metrics", func(status int, body []byte) bool {
		require.Equal(t, http.StatusOK, status)
		require.LessOrEqual(t, tailed(t, body), len(documents)-indexed)
		return true
	})
	want := expected(documents)
	compareAll(t, newClient(t, second), want)
	compareAll(t, newClient(t, first), want)
	first.Stop(t)
	second.Stop(t)
}

// tailed returns the number of queue entries that a daemon has read, from its metrics.
func tailed(t *testing.T, metrics []byte) (entries int) {
	t.Helper()
	name := fmt.Sprintf("docstore_tail_entries_total{collection=%q} ", collectionName)
	_, after, found := strings.Cut(string(metrics), name)
	require.True(t, found)
	_, err := fmt.Sscan(after, &entries)
	require.NoError(t, err)
	return entries
}

// TestNewMachineFromCheckpoint: a machine with a copy of a checkpoint and a copy of the queue
// reads only the entries appended since, and then serves all documents, with the changes and
// deletes.
func TestNewMachineFromCheckpoint(t *testing.T) {
	documents := corpus(t)
	queue, data := t.TempDir(), t.TempDir()
	appendAll := func(lines []byte) {
		start(t, bytes.NewReader(lines), "docstore-updater", "append", "--queue", queue, "--segment-size", segmentSize).WaitExit(t)
	}
	appendAll(ndjson(documents))
	first := startDaemon(t, queue, data)
	first.waitReady(t)
	first.Stop(t)
	checkpoint := filepath.Join(t.TempDir(), "checkpoint")
	start(t, nil, "docserviced", "checkpoint", "--data", data, checkpoint).WaitExit(t)

	// The old daemon continues and its index diverges from the checkpoint.
	want := expected(documents)
	changes := change(documents, want)
	appendAll(ndjson(changes))
	first.restart(t)
	first.waitReady(t)
	first.Stop(t)

	newQueue, newData := copied(t, queue), copied(t, checkpoint)
	second := startDaemon(t, newQueue, newData)
	second.waitReady(t)
	second.poll(t, "/metrics", func(status int, body []byte) bool {
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, len(changes), tailed(t, body))
		return true
	})
	client := newClient(t, second)
	compareAll(t, client, want)
	second.poll(t, "/collections/"+collectionName+"/count", func(status int, body []byte) bool {
		require.Equal(t, http.StatusOK, status)
		found := 0
		for _, document := range want {
			if document != nil {
				found++
			}
		}
		require.JSONEq(t, fmt.Sprintf(`{"count":%d}`, found), string(body))
		return true
	})
	second.Stop(t)
	start(t, nil, "docserviced", "check", "--data", newData).WaitExit(t)
}

// copied is a directory on another machine, copied by rsync.
func copied(t *testing.T, dir string) string {
	t.Helper()
	there := filepath.Join(t.TempDir(), "copied")
	testprocess.Start(t, exec.Command("rsync", "-a", dir+"/", there)).WaitExit(t)
	return there
}
