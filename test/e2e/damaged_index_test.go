package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testprocess"
)

// indexedInTables creates a queue and a data directory whose index is entirely in tables, as
// in a checkpoint.
func indexedInTables(t *testing.T, documents []document) (queue, data string) {
	t.Helper()
	queue, served, data := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "checkpoint")
	start(t, bytes.NewReader(ndjson(documents)), "docstore-updater", "append", "--queue", queue).WaitExit(t)
	d := startDaemon(t, queue, served)
	d.waitReady(t)
	d.Stop(t)
	start(t, nil, "docserviced", "checkpoint", "--data", served, data).WaitExit(t)
	return queue, data
}

// TestDamagedIndex damages a byte of a table, then one of the manifest. Check reports the
// file; the daemon rebuilds the index from the queue and serves all documents.
func TestDamagedIndex(t *testing.T) {
	t.Parallel()
	documents := corpus(t)[:5_000]
	queue, checkpoint := indexedInTables(t, documents)
	for _, damage := range []struct{ files, says string }{
		{"*.table", "is damaged and is rebuilt from the queue"},
		{"MANIFEST", "it is renamed and rebuilt from the queue"},
	} {
		data := t.TempDir()
		require.NoError(t, os.CopyFS(data, os.DirFS(checkpoint)))
		check := func() *testprocess.Command { return start(t, nil, "docserviced", "check", "--data", data) }
		check().WaitExit(t)
		files, err := filepath.Glob(filepath.Join(data, collectionName, "index-0001.v1", damage.files))
		require.NoError(t, err)
		require.Len(t, files, 1)
		content, err := os.ReadFile(files[0])
		require.NoError(t, err)
		content[len(content)/3] ^= 1
		require.NoError(t, os.WriteFile(files[0], content, 0o600))
		checked := check()
		<-checked.Exited
		require.Equal(t, 1, checked.ProcessState.ExitCode())
		require.Contains(t, checked.Output.String(), filepath.Base(files[0]))

		d := startDaemon(t, queue, data)
		for _, document := range documents {
			d.waitDocument(t, document.id, document.line)
		}
		d.WaitOutput(t, damage.says)
		d.waitReady(t)
		compareAll(t, newClient(t, d), expected(documents))
		d.Stop(t)
		check().WaitExit(t)
	}
}

// TestTruncatedTableBeneathARunningDaemon truncates the only table of one of two daemons, as a
// failing disk might. A client of both daemons loses no get and no batch and receives no wrong
// answer. The daemon reports that it is not ready and rebuilds its index. A daemon whose table
// is missing starts, logs it and rebuilds its index.
func TestTruncatedTableBeneathARunningDaemon(t *testing.T) {
	t.Parallel()
	documents := corpus(t)[:5_000]
	queue, data := indexedInTables(t, documents)
	healthy := startDaemon(t, queue, t.TempDir())
	d := startDaemon(t, queue, data)
	d.waitReady(t)
	healthy.waitReady(t)
	client := newClient(t, d, healthy)
	tables := func(index string) []string {
		files, err := filepath.Glob(filepath.Join(data, collectionName, index, "*.table"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		return files
	}
	require.NoError(t, os.Truncate(tables("index-0001.v1")[0], 4096))
	servers := d.boxcar + "," + healthy.boxcar
	for _, document := range documents[:40] {
		get := start(t, nil, "boxcar", "get", "--servers", servers, "--collection", collectionName, document.id)
		get.WaitExit(t)
		require.Equal(t, string(document.line), strings.TrimSuffix(get.Output.String(), "\n"))
	}
	var buffer []byte
	for id, want := range expected(documents) {
		var wrong string
		buffer, wrong = fetch(client, buffer, id, want)
		require.Empty(t, wrong)
	}
	compareBatches(t, client, expected(documents))
	d.WaitOutput(t, "the index is damaged and is rebuilt from the queue")
	d.WaitOutput(t, "serving another index")
	d.waitReady(t)
	compareAll(t, newClient(t, d), expected(documents))
	d.Stop(t)

	again := filepath.Join(t.TempDir(), "checkpoint")
	start(t, nil, "docserviced", "checkpoint", "--data", data, again).WaitExit(t)
	data = again
	require.NoError(t, os.Remove(tables("index-0001.v1")[0]))
	d = startDaemon(t, queue, data)
	d.WaitOutput(t, "it is renamed and rebuilt from the queue")
	d.waitReady(t)
	compareAll(t, newClient(t, d), expected(documents))
	d.poll(t, "/readyz", func(_ int, body []byte) bool { return bytes.Contains(body, []byte(`"faults": []`)) })
	d.Stop(t)
}
