package e2e

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
)

// TestKilledDuringFetch kills a daemon again and again while it fetches its first manifest.
// A file that was fetched is not fetched again, and the daemon ends with every document.
func TestKilledDuringFetch(t *testing.T) {
	kills := crashtest.Share(50, 200)
	s3 := startS3(t)
	flags, gets := s3.flags, &s3.gets
	const url = "s3://docs/debian"
	documents := corpus(t)[:20_000]
	queue, random := t.TempDir(), testseed.Rand(t)
	start(t, bytes.NewReader(ndjson(documents)), "docstore-updater", append([]string{
		"append", "--queue", queue, "--segment-size", "256KiB", "--quiet", "--publish", url,
	}, flags...)...).WaitExit(t)
	for _, command := range []string{"validate", "announce"} {
		start(t, nil, "docstore-updater", append([]string{command, "--bucket", url}, flags...)...).WaitExit(t)
	}
	segments, err := filepath.Glob(filepath.Join(queue, "*.seg"))
	require.NoError(t, err)
	gets.Store(0)

	d := startDaemonWith(t, url, filepath.Join(t.TempDir(), "data"), flags...)
	for range kills {
		time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		d.Kill()
		d.restart(t)
	}
	d.waitReady(t)
	compareAll(t, newClient(t, d), expected(documents))
	// At each kill at most 8 files are being fetched.
	require.LessOrEqual(t, gets.Load(), int64(len(segments)+kills*8))
	fetched := gets.Load()
	d.Kill()
	d.restart(t)
	d.waitReady(t)
	compareAll(t, newClient(t, d), expected(documents))
	require.Equal(t, fetched, gets.Load(), "a restart fetches nothing")
	d.Stop(t)
}

// TestFilesComeFromPeers starts two servers while a third one serves the collection. They
// fetch no file from the bucket. One that has the damaged copy of a peer does.
func TestFilesComeFromPeers(t *testing.T) {
	s3 := startS3(t)
	flags, gets := s3.flags, &s3.gets
	const url = "s3://docs/debian"
	documents := corpus(t)[:8_000]
	start(t, bytes.NewReader(ndjson(documents)), "docstore-updater", append([]string{
		"append", "--queue", t.TempDir(), "--segment-size", "256KiB", "--quiet", "--publish", url,
	}, flags...)...).WaitExit(t)
	for _, command := range []string{"validate", "announce"} {
		start(t, nil, "docstore-updater", append([]string{command, "--bucket", url}, flags...)...).WaitExit(t)
	}
	list := filepath.Join(t.TempDir(), "servers")
	require.NoError(t, os.WriteFile(list, nil, 0o600))
	flags = append(flags, "--peers", "file:"+list, "--peer-transfers", "64") // no server is too busy
	first := startDaemonWith(t, url, filepath.Join(t.TempDir(), "data"), flags...)
	first.waitReady(t)
	require.NoError(t, os.WriteFile(list, []byte(first.boxcar+"\n"), 0o600))
	fetched := gets.Load()
	require.Positive(t, fetched)
	var others []*daemon
	for range 2 {
		others = append(others, startDaemonWith(t, url, filepath.Join(t.TempDir(), "data"), flags...))
	}
	for _, d := range others {
		d.waitReady(t)
		compareAll(t, newClient(t, d), expected(documents))
		d.poll(t, "/metrics", func(_ int, body []byte) bool {
			return bytes.Contains(body, []byte(`docstore_manifest_fetched_bytes_total{collection="debian",source="bucket"} 0`+"\n"))
		})
	}
	require.Equal(t, fetched, gets.Load())
	for _, d := range append(others, first) {
		d.Stop(t)
	}
}

// TestFullDiskUnderTheDownload: the disk of a server is full. The server reports it, serves
// the last manifest, and fetches the next one when there is space again.
func TestFullDiskUnderTheDownload(t *testing.T) {
	disk, work := smallDisk(t), t.TempDir()
	queue, url := filepath.Join(work, "queue"), "file://"+filepath.Join(work, "bucket")
	documents := manyDocuments()
	publish := func(documents []document) {
		t.Helper()
		start(t, bytes.NewReader(ndjson(documents)), "docstore-updater", "append", "--queue", queue, "--quiet").WaitExit(t)
		start(t, nil, "docstore-updater", "seal", "--queue", queue).WaitExit(t)
		start(t, nil, "docstore-updater", "publish", "--queue", queue, "--bucket", url, "--quiet").WaitExit(t)
		start(t, nil, "docstore-updater", "validate", "--bucket", url, "--queue", filepath.Join(work, "validate"), "--quiet").WaitExit(t)
		start(t, nil, "docstore-updater", "announce", "--bucket", url).WaitExit(t)
	}
	publish(documents[:100])
	d := startDaemonWith(t, url, filepath.Join(disk, "data"), "--memory", "16MiB")
	d.waitReady(t)
	load := startLoad(t, newClient(t, d), expected(documents[:100]))
	ballast := fillDisk(t, disk, 0)
	publish(documents[100:])
	d.poll(t, "/api/v1/status", func(_ int, body []byte) bool {
		return strings.Contains(string(body), "no space left on device")
	})
	d.poll(t, "/readyz", func(status int, _ []byte) bool { return status == http.StatusOK })
	require.NoError(t, os.Remove(ballast))
	d.waitManifest(t, 2)
	last := documents[len(documents)-1]
	d.waitDocument(t, last.id, last.line)
	load.stop(t)
	d.Stop(t)
}
