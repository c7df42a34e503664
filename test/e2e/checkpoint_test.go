package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNewMachineFromCheckpoint: a machine that is given a copy of a checkpoint and
// a copy of the queue has to read only what was appended since, and then answers
// for everything, changes and deletes included.
func TestNewMachineFromCheckpoint(t *testing.T) {
	documents := corpus(t)
	queue, data := t.TempDir(), t.TempDir()
	appendAll := func(lines []byte) {
		start(t, bytes.NewReader(lines), "docstore-updater", "append", "--queue", queue, "--segment-size", segmentSize).wait(t)
	}
	appendAll(ndjson(documents))
	first := startDaemon(t, queue, data)
	first.waitReady(t)
	first.stop(t)
	checkpoint := filepath.Join(t.TempDir(), "checkpoint")
	start(t, nil, "docserviced", "checkpoint", "--data", data, checkpoint).wait(t)

	// The old daemon goes on, and its index away from the checkpoint.
	want := expected(documents)
	changes := change(documents, want)
	appendAll(ndjson(changes))
	first.restart(t)
	first.waitReady(t)
	first.stop(t)

	newQueue, newData := filepath.Join(t.TempDir(), "queue"), filepath.Join(t.TempDir(), "data")
	for from, to := range map[string]string{queue: newQueue, checkpoint: newData} {
		launch(t, exec.Command("rsync", "-a", from+"/", to)).wait(t)
	}
	second := startDaemon(t, newQueue, newData)
	second.waitReady(t)
	second.poll(t, "/metrics", func(status int, body []byte) bool {
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, string(body), fmt.Sprintf("docstore_tail_entries_total{collection=%q} %d\n", collection, len(changes)))
		return true
	})
	client := newClient(t, second)
	compareAll(t, client, want)
	second.poll(t, "/collections/"+collection+"/count", func(status int, body []byte) bool {
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
	second.stop(t)
	start(t, nil, "docserviced", "check", "--data", newData).wait(t)
}
