package updater

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/internal/freeport"
)

// scrapePatience is how long scrape waits: a loaded machine takes half a minute to test a new
// bucket.
const scrapePatience = 5 * time.Minute

// scrape waits until the metrics contain all lines, each an expression for a whole line.
func scrape(t *testing.T, address string, lines ...string) {
	t.Helper()
	content, missing := "", ""
	ok := assert.Eventually(t, func() bool {
		response, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return false // it has not started yet
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		content = string(body)
		for _, line := range lines {
			if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(content) {
				missing = line
				return false
			}
		}
		return err == nil
	}, scrapePatience, 10*time.Millisecond)
	require.True(t, ok, "no %s in %s", missing, content)
	http.DefaultClient.CloseIdleConnections()
}

// appendInBackground runs append with metrics. The function that it returns ends it.
func appendInBackground(t *testing.T, stdin io.Reader, args ...string) (address string, end func() result) {
	t.Helper()
	address = freeport.Address(t)
	ended := make(chan result, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		ended <- run(ctx, stdin, append([]string{"append", "--metrics", address, "--flush-interval", "10ms"}, args...)...)
	}()
	return address, func() result {
		stop()
		return <-ended
	}
}

// TestMetrics reads the metrics of append --publish --announce: of an ordinary run, after too
// many deletes, and with a store that fails.
func TestMetrics(t *testing.T) {
	root := t.TempDir()
	store := filepath.Join(root, "bucket")
	reader, writer := io.Pipe()
	address, end := appendInBackground(t, reader, "--queue", filepath.Join(root, "jobs"), "--shards", "2",
		"--publish", "file://"+store, "--announce", "--skip-bad")
	content := lines(0, 10, "") + `{"id":"1","_delete":true}` + "\nx\n"
	_, err := io.WriteString(writer, content)
	require.NoError(t, err)
	scrape(t, address,
		`docstore_append_documents_total{queue="jobs"} 10`,
		`docstore_append_deletes_total{queue="jobs"} 1`,
		`docstore_append_bad_records_total{queue="jobs"} 1`,
		`docstore_append_source_bytes_total{queue="jobs"} 1[0-9]{2}`,
		`docstore_append_flush_seconds_count{queue="jobs"} [1-9].*`,
		`docstore_append_fsync_seconds_count{queue="jobs"} [1-9].*`,
		`docstore_append_position_segment{queue="jobs",shard="1"} [1-9]`,
		`docstore_append_position_block_offset{queue="jobs",shard="0"} [1-9].*`,
		`docstore_append_manifest{queue="jobs",state="published"} [1-9]`,
		`docstore_append_manifest{queue="jobs",state="announced"} [1-9]`,
		`docstore_append_announce_stopped{queue="jobs"} 0`,
		`docstore_append_publish_error{queue="jobs"} 0`,
		`process_open_fds .*`,
	)
	_, err = io.WriteString(writer, lines(0, 300, `,"_delete":true`))
	require.NoError(t, err)
	scrape(t, address, `docstore_append_announce_stopped{queue="jobs"} 1`, `docstore_append_deletes_total{queue="jobs"} 301`)
	require.NoError(t, os.Rename(store, store+".away"))
	write(t, store, "") // not a directory
	scrape(t, address, `docstore_append_publish_error{queue="jobs"} 1`)
	require.NoError(t, writer.Close())
	r := end()
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stderr, `"url":"http://`+address+`/metrics"`)
}

// TestMetricsOfSources: the lag of each source has its name and unit.
func TestMetricsOfSources(t *testing.T) {
	root := t.TempDir()
	url, produce := newTopic(t)
	produce(`17={"id":"17"}`)
	file := write(t, filepath.Join(root, "from.yaml"), "sources:\n  - name: events\n    from: "+url+"\n  - name: archive\n    from: file://"+root+"/*.ndjson\n")
	write(t, filepath.Join(root, "a.ndjson"), a1+"\n")
	address, end := appendInBackground(t, nil, "--queue", filepath.Join(root, "jobs"), "--from", file, "--follow")
	scrape(t, address, `docstore_append_documents_total{queue="jobs"} 2`,
		`docstore_append_lag_messages{queue="jobs",source="events"} 0`, `docstore_append_lag_bytes{queue="jobs",source="archive"} 0`)
	require.Equal(t, cli.ExitOK, end().status)

	address, end = appendInBackground(t, nil, "--queue", filepath.Join(root, "one"), "--from", url, "--follow", "--rate", "0.001")
	produce(`18={"id":"18"}`, `19={"id":"19"}`)
	scrape(t, address, `docstore_append_lag_messages{queue="one",source=""} [0-9]+`)
	require.Equal(t, cli.ExitOK, end().status)
}

func TestMetricsAddress(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "queue")
	r := run(t.Context(), nil, "append", "--queue", dir, "--metrics", "7072")
	require.Equal(t, cli.ExitUsage, r.status)
	require.Contains(t, r.lastLine(), "--metrics 7072: want HOST:PORT")
	r = run(t.Context(), nil, "append", "--queue", dir, "--metrics", "127.0.0.1:70720")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "--metrics 127.0.0.1:70720: ")
	require.NoDirExists(t, dir, "before the queue is created")
}

// docs/metrics.md lists exactly the metrics of append.
func TestMetricsPageIsComplete(t *testing.T) {
	page, err := os.ReadFile("../../../docs/metrics.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(page), "<!-- docstore-updater -->")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "<!-- end -->")
	listed := map[string]bool{}
	for _, name := range regexp.MustCompile("(?m)^- `(docstore_[a-z_]+)").FindAllStringSubmatch(section, -1) {
		listed[name[1]] = true
	}
	m, there := newMetrics("queue"), map[string]bool{}
	m.serve(&appendCollector{})
	descs := make(chan *prometheus.Desc, 1000)
	m.registry.Describe(descs)
	close(descs)
	for desc := range descs {
		if name := regexp.MustCompile(`fqName: "(docstore_[^"]+)"`).FindStringSubmatch(desc.String()); name != nil {
			there[name[1]] = true
		}
	}
	require.Equal(t, there, listed)
}
