package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"
)

// startS3 starts an S3 server in memory with a bucket named "docs", and returns the flags
// that name it. gets, if not nil, counts the requests for files of manifests.
func startS3(t *testing.T, gets *atomic.Int64) []string {
	t.Helper()
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("docs"))
	s3 := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if gets != nil && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/file/") {
			gets.Add(1)
		}
		s3.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	return []string{"--s3-endpoint", server.URL, "--s3-path-style"}
}

// TestBadIngestIsRolledBack publishes a collection to an S3 server. A canary serves a bad
// ingest first, then all servers do, then it is rolled back and corrected. Documents that
// the ingest does not change are served all the time, and a server that is killed
// continues.
func TestBadIngestIsRolledBack(t *testing.T) {
	flags := startS3(t, nil)
	const url = "s3://docs/debian"
	documents := corpus(t)[:8_000]
	queue, work := t.TempDir(), t.TempDir()
	updater := func(args ...string) {
		t.Helper()
		start(t, nil, "docstore-updater", append(append(args, "--bucket", url), flags...)...).wait(t)
	}
	ingest := func(changed []document) {
		t.Helper()
		start(t, bytes.NewReader(ndjson(changed)), "docstore-updater", "append", "--queue", queue, "--segment-size", "1MiB", "--quiet").wait(t)
		start(t, nil, "docstore-updater", "seal", "--queue", queue).wait(t)
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

	servers[2].kill()
	servers[2].restart(t)
	serves(1, good, servers[2])

	updater("revert", "--queue", queue, "--to", "1")
	release()
	serves(3, good, servers...)
	load.stop(t)
	for _, d := range servers {
		d.stop(t)
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
