package updater

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"docstore/cmd/internal/cli"
	"docstore/queue/bucket"
	"docstore/queue/publish"

	"github.com/stretchr/testify/require"
)

// lines returns documents, or deletes, as NDJSON.
func lines(from, to int, suffix string) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, `{"id":"%d"%s}`+"\n", i, suffix)
	}
	return b.String()
}

// TestAnnounce announces the segments of batches.
func TestAnnounce(t *testing.T) {
	root := t.TempDir()
	dir, input := filepath.Join(root, "queue"), filepath.Join(root, "input")
	url := "file://" + filepath.Join(root, "bucket")
	appending := func(content string, flags ...string) result {
		write(t, input, content)
		return run(t.Context(), nil, append([]string{"append", "--queue", dir, "--publish", url, "--announce", "--quiet", input}, flags...)...)
	}
	announced := func() string {
		return strings.TrimSpace(ok(t, "", "manifests", "--bucket", url, "--json").stdout)
	}
	require.Equal(t, cli.ExitOK, appending(lines(0, 500, "")).status)
	require.Contains(t, announced(), `"number":1`)
	require.Contains(t, announced(), `"announced":true`)

	// Too many deletes: they are published, and not announced until that is done by hand.
	r := appending(lines(0, 400, `,"_delete":true`))
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "400 of the last 400 entries are deletes, more than 50.0 %")
	r = appending(lines(0, 1, ""))
	require.Equal(t, cli.ExitFailure, r.status, "it stays so for the next one")
	require.Regexp(t, `(?s)"number":1,.*"announced":true.*"number":2,.*"announced":false.*"number":3,.*"announced":false`, announced())
	ok(t, "", "validate", "--bucket", url, "--quiet")
	ok(t, "", "announce", "--bucket", url)
	require.Equal(t, cli.ExitOK, appending(lines(1, 2, "")).status)
	require.Regexp(t, `"number":4,.*"announced":true`, announced())

	r = appending(lines(0, 200, "")+strings.Repeat("x\n", 100), "--skip-bad")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "100 of the last 300 records are invalid, more than 10.0 %")

	require.Equal(t, cli.ExitUsage, run(t.Context(), nil, "append", "--queue", dir, "--announce", input).status)
	require.Equal(t, cli.ExitUsage, appending("", "--max-rate", "0.5").status)
}

// TestAnnounceStream announces documents while append is running. A restored queue has
// them, although their segment was never published.
func TestAnnounceStream(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "queue")
	url := "file://" + filepath.Join(root, "bucket")
	reader, writer := io.Pipe()
	finished := make(chan result, 1)
	go func() {
		finished <- run(t.Context(), reader, "append", "--queue", dir, "--publish", url, "--announce", "--flush-interval", "10ms", "--quiet")
	}()
	content := lines(0, 1, "")
	attempts := 0
	// restored restores the queue until it has everything, and returns its directory.
	restored := func() (to string) {
		t.Helper()
		require.Eventually(t, func() bool {
			attempts++
			to = filepath.Join(root, fmt.Sprint("restored-", attempts))
			if run(t.Context(), nil, "restore", "--bucket", url, "--queue", to, "--quiet").status != cli.ExitOK {
				return false // nothing is published yet
			}
			ok(t, "", "seal", "--queue", to)
			return dump(t, to) == content
		}, time.Minute, 200*time.Millisecond)
		return to
	}
	_, err := writer.Write([]byte(content))
	require.NoError(t, err)
	restored()
	for n := 1; n < 4; n++ {
		line := lines(n, n+1, "")
		_, err := writer.Write([]byte(line))
		require.NoError(t, err)
		content += line
		restored()
	}
	require.Len(t, strings.Split(strings.TrimSpace(ok(t, "", "manifests", "--bucket", url, "--json").stdout), "\n"), 1)
	require.NoError(t, writer.Close())
	r := <-finished
	require.Equal(t, cli.ExitOK, r.status, r.lastLine())
	last := restored()
	require.Contains(t, ok(t, "", "publish", "--queue", last, "--bucket", url, "--quiet").stdout, "has all sealed segments already")

	b, err := bucket.Open(t.Context(), url, bucket.Options{})
	require.NoError(t, err)
	log, err := publish.OpenLog(t.Context(), b, time.Now)
	require.NoError(t, err)
	record, err := log.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, record.Head, record.Announced)
	require.True(t, record.Increments)
}
