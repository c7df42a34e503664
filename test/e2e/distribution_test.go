package e2e

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBadIngestIsRolledBack publishes a collection to an S3 server. A canary serves a bad
// ingest first, then all servers do, then it is rolled back and corrected. Documents that
// the ingest does not change are served all the time, and a server that is killed
// continues.
func TestBadIngestIsRolledBack(t *testing.T) {
	s3 := startS3(t)
	flags := s3.flags
	const url = "s3://docs/debian"
	documents := corpus(t)[:8_000]
	queue, work := t.TempDir(), t.TempDir()
	updater := func(args ...string) {
		t.Helper()
		start(t, nil, "docstore-updater", append(append(args, "--bucket", url), flags...)...).WaitExit(t)
	}
	ingest := func(changed []document) {
		t.Helper()
		start(t, bytes.NewReader(ndjson(changed)), "docstore-updater", "append", "--queue", queue, "--segment-size", "1MiB", "--quiet").WaitExit(t)
		start(t, nil, "docstore-updater", "seal", "--queue", queue).WaitExit(t)
		updater("publish", "--queue", queue, "--quiet")
	}
	release := func() {
		t.Helper()
		updater("validate", "--queue", work, "--quiet", "--require-id", documents[5].id)
		updater("announce")
	}
	ingest(documents)
	release()
	good := expected(documents)

	serve := func(group string) *daemon {
		return startDaemonWith(t, url, filepath.Join(t.TempDir(), "data"), append(flags, "--group", group)...)
	}
	servers := []*daemon{serve("canary"), serve("others"), serve("others")}
	for _, d := range servers {
		d.waitReady(t)
		compareAll(t, newClient(t, d), good)
	}

	// change updates or deletes a fifth of the documents.
	bad := maps.Clone(good)
	changes := change(documents, bad)
	unchanged := maps.Clone(good)
	for id, line := range bad {
		if !bytes.Equal(line, good[id]) {
			delete(unchanged, id)
		}
	}
	load := startLoad(t, newClient(t, servers...), unchanged)
	serves := func(number uint64, want map[string][]byte, daemons ...*daemon) {
		t.Helper()
		for _, d := range daemons {
			d.waitManifest(t, number)
			for _, c := range changes {
				d.waitDocument(t, c.id, want[c.id])
			}
			compareAll(t, newClient(t, d), want)
		}
	}
	ingest(changes)
	updater("pin", "--to", "2", "--group", "canary")
	serves(2, bad, servers[0])
	serves(1, good, servers[1:]...)
	release()
	updater("unpin", "--group", "canary")
	serves(2, bad, servers...)

	updater("rollback", "--to", "1", "--reason", "bad")
	serves(1, good, servers...)

	servers[2].Kill()
	servers[2].restart(t)
	serves(1, good, servers[2])

	updater("revert", "--queue", queue, "--to", "1")
	release()
	serves(3, good, servers...)
	load.stop(t)
	for _, d := range servers {
		d.Stop(t)
	}
}

// waitManifest returns once the daemon serves a manifest.
func (d *daemon) waitManifest(t *testing.T, number uint64) {
	t.Helper()
	d.poll(t, "/api/v1/status", func(status int, body []byte) bool {
		var s struct {
			Collections []struct {
				Manifest struct{ Served uint64 }
			}
		}
		require.Equal(t, http.StatusOK, status)
		require.NoError(t, json.Unmarshal(body, &s))
		return s.Collections[0].Manifest.Served == number
	})
}
