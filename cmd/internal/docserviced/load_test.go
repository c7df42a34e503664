package docserviced

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/internal/servertest"
)

// serveLoaded runs serve with free ports until it prints where it serves the loaded documents. It
// returns what it printed, and a function that stops it.
func serveLoaded(t *testing.T, stdin string, args ...string) (printed string, stop func()) {
	t.Helper()
	var stdout, stderr servertest.Buffer
	env := &cli.Env{Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr, Now: time.Now}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Run(ctx, New, env, append([]string{"serve", "--boxcar", "127.0.0.1:0", "--http", "127.0.0.1:0"}, args...))
	}()
	servertest.Until(servertest.Shortly(t), func() bool { return strings.Contains(stdout.String(), "status:") || len(ended) > 0 })
	require.Contains(t, stdout.String(), "status:", stderr.String())
	return stdout.String(), func() {
		cancel()
		require.Equal(t, cli.ExitOK, <-ended, stderr.String())
	}
}

// example fetches the document whose URL was printed for a collection.
func example(t *testing.T, printed, collection string) string {
	t.Helper()
	url := regexp.MustCompile(`(?m)^` + collection + `: .*, such as (\S+)$`).FindStringSubmatch(printed)
	require.NotNil(t, url, printed)
	response, err := http.Get(url[1])
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", body)
	return string(body)
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestLoad(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	jobs := writeFile(t, "jobs.ndjson", `{"id":"b/2","title":"Baker"}`+"\n"+`{"id":"c","title":"Cook"}`+"\n")
	shops := writeFile(t, "shops.csv", "id,city\n7,Austin\n")
	printed, stop := serveLoaded(t, "", "--load", "jobs="+jobs, "--load", "shops="+shops)
	require.Contains(t, printed, "jobs: 2 documents, such as http://127.0.0.1:")
	require.Contains(t, printed, "shops: 1 document, such as http://127.0.0.1:")
	require.JSONEq(t, `{"id":"b/2","title":"Baker"}`, example(t, printed, "jobs"))
	require.JSONEq(t, `{"id":"7","city":"Austin"}`, example(t, printed, "shops"))
	stop()
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left, "serve must remove its temporary directory")
}

func TestLoadOtherIDsFromStandardInput(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	printed, stop := serveLoaded(t, `{"sku":"x1"}`, "--load", "products=-", "--id-field", "sku")
	require.JSONEq(t, `{"sku":"x1"}`, example(t, printed, "products"))
	stop()
}

// The queue in --data is kept: the next start appends what the file has more. If the file was
// replaced, its documents replace the others.
func TestLoadContinues(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	file := writeFile(t, "jobs.ndjson", `{"id":"a"}`+"\n")
	for n := 1; n <= 2; n++ {
		printed, stop := serveLoaded(t, "", "--load", "jobs="+file, "--data", data)
		require.Contains(t, printed, fmt.Sprintf("jobs: %d document", n))
		stop()
		require.NoError(t, os.WriteFile(file, []byte(`{"id":"a"}`+"\n"+`{"id":"b"}`+"\n"), 0o600))
	}
	require.NoError(t, os.WriteFile(file, []byte(`{"id":"another"}`+"\n"), 0o600))
	for range 2 {
		printed, stop := serveLoaded(t, "", "--load", "jobs="+file, "--data", data)
		require.Contains(t, printed, "jobs: 1 document,")
		require.JSONEq(t, `{"id":"another"}`, example(t, printed, "jobs"))
		stop()
	}
	require.NoError(t, os.WriteFile(file, []byte(`{"id":"b"}`+"\n"+`{"id":"b"}`+"\n"), 0o600))
	r := run(t.Context(), "serve", "--load", "jobs="+file, "--data", data)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), `jobs.ndjson:2: the id "b" occurs twice; a whole state has one document of each id; correct it, or give another --data`)
}

func TestLoadRefuses(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	empty, bad := writeFile(t, "empty.ndjson", ""), writeFile(t, "bad.ndjson", `{"name":"x"}`+"\n")
	dir := t.TempDir()
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--load", "jobs"}, cli.ExitUsage, "--load jobs: must be NAME=FILE"},
		{[]string{"--load", "a/b=" + bad}, cli.ExitUsage, "--load a/b=" + bad + ": a name has"},
		{[]string{"--load", "jobs=" + bad, "--collection", "jobs=" + dir}, cli.ExitUsage, "--load jobs=" + bad + ": duplicate name"},
		{[]string{"--load", "jobs=" + bad, "--id-field", ""}, cli.ExitUsage, "--id-field is empty"},
		{[]string{"--load", "jobs=" + dir}, cli.ExitFailure, dir + " is a directory"},
		{[]string{"--load", "jobs=" + filepath.Join(dir, "none")}, cli.ExitFailure, "no such file"},
		{[]string{"--load", "jobs=" + empty}, cli.ExitFailure, empty + " has no documents"},
		{[]string{"--load", "jobs=" + bad}, cli.ExitFailure, bad + `:1: no id: there is no field "id"; correct it, or append the file with docstore append --skip-bad`},
	} {
		r := run(t.Context(), append([]string{"serve"}, c.args...)...)
		require.Equal(t, c.status, r.status, "%v: %s", c.args, r.stderr)
		require.Contains(t, r.lastLine(), c.want)
		left, err := os.ReadDir(temporary)
		require.NoError(t, err)
		require.Empty(t, left, "%v", c.args)
	}
}
