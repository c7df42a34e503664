package docserviced

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/internal/crashtest"
	"docstore/internal/servertest"
	"docstore/internal/testseed"
	"docstore/lsm"
)

// TestCheckFindsEveryWrongByte changes every byte of an index's table, manifest and filter
// scores, and truncates each file at every length.
func TestCheckFindsEveryWrongByte(t *testing.T) {
	random := testseed.Rand(t)
	queueDir := t.TempDir()
	var pairs []string
	for i := range 100 {
		pairs = append(pairs, fmt.Sprint("document-", i), `{"id":"a"}`)
	}
	servertest.Fill(t, queueDir, pairs...)
	o := testOptions(t, queueDir)
	indexOnce(t, o)
	target := filepath.Join(t.TempDir(), "copy") // a checkpoint has tables
	require.Equal(t, cli.ExitOK, run(t.Context(), "checkpoint", "--data", o.DataDir, target).status)
	files, err := filepath.Glob(filepath.Join(target, "jobs", "index-0001.v1", "*"))
	require.NoError(t, err)
	requireFound := func(path string, content []byte, how string) {
		require.NoError(t, os.WriteFile(path, content, 0o600))
		r := run(t.Context(), "check", "--data", target)
		require.Equal(t, cli.ExitFailure, r.status, "%s %s: %s", filepath.Base(path), how, r.stdout)
		require.Contains(t, r.stdout, path)
	}
	checked := 0
	step := crashtest.Share(7, 1)
	for _, path := range files {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		if len(content) == 0 { // LOCK
			continue
		}
		checked++
		crashtest.Damage(random, content, step, func(damaged []byte, how string) { requireFound(path, damaged, how) })
		require.NoError(t, os.WriteFile(path, content, 0o600))
	}
	require.Equal(t, 3, checked, "%v", files)
	require.Equal(t, cli.ExitOK, run(t.Context(), "check", "--data", target).status)
}

// TestCheckComparesWithTheQueue: check reports an index whose queue was restored from an
// older copy and appended to, and one whose newest segment was replaced.
func TestCheckComparesWithTheQueue(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	older := t.TempDir()
	require.NoError(t, os.CopyFS(older, os.DirFS(queueDir)))
	servertest.Fill(t, queueDir, "b", `{"id":"b"}`)
	o := testOptions(t, queueDir)
	indexOnce(t, o)
	check := func(queue string) result {
		return run(t.Context(), "check", "--data", o.DataDir, "--collection", "jobs="+queue)
	}
	r := check(queueDir)
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	servertest.Fill(t, older, "c", `{"id":"c"}`)
	r = check(older)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stdout, "jobs: the queue in "+older+" does not continue the history of the index: ")
	require.Contains(t, r.stdout, "forked")
	r = run(t.Context(), "check", "--data", o.DataDir, "--collection", "jobs="+older, "--json")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Regexp(t, `^\{"collection":"jobs","seconds":[\d.e-]+,"queue":"`+older+`","fork":".*forked.*"\}\n$`, r.stdout)
	r = run(t.Context(), "check", "--data", o.DataDir, "--collection", "others="+queueDir)
	require.Contains(t, r.stderr, "has no index of collection others")
}

// check --ids finds every kind of difference; reindex repairs it, of a running and of a
// stopped daemon.
func TestCheckIDsAndReindex(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"v":1}`, "b", `{"v":1}`, "a", `{"v":2}`, "gone", "{}", "gone", "")
	o := testOptions(t, queueDir)
	indexOnce(t, o)
	check := func() result {
		return run(t.Context(), "check", "--data", o.DataDir, "--collection", "jobs="+queueDir, "--ids")
	}
	r := check()
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	require.Contains(t, r.stdout, "jobs: 2 ids are as in the queue\n")
	servertest.Fill(t, queueDir, "b", `{"v":2}`, "new", `{}`)
	r = check()
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	require.Contains(t, r.stdout, "jobs: 1 id is as in the queue, 2 ids have not been compared")
	indexOnce(t, o)
	require.Contains(t, check().stdout, "jobs: 3 ids are as in the queue\n")

	// Damage the index without a trace in its checksums.
	index, err := lsm.Open(filepath.Join(o.DataDir, "jobs", "index-0001.v1"), nil)
	require.NoError(t, err)
	value, err := index.Get(nil, []byte("b"))
	require.NoError(t, err)
	require.NoError(t, index.Set([]byte("extra"), value))
	require.NoError(t, index.Set([]byte("a"), value))
	require.NoError(t, index.Delete([]byte("new")))
	require.NoError(t, index.Close())
	r = check()
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "1 of 1 indexes differ from their queues; docserviced reindex")
	for _, want := range []string{
		"jobs: 1 id is as in the queue, 1 is missing, 1 is wrong, 1 is superfluous", `id "a": the index has 2/`, `id "extra": the index has 2/`, "document 2/",
	} {
		require.Contains(t, r.stdout, want)
	}

	r = run(t.Context(), "check", "--data", o.DataDir, "--collection", "jobs="+queueDir, "--ids", "--json")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Regexp(t, `^\{"collection":"jobs","seconds":[\d.e-]+,"queue":"`+queueDir+`","ids":\{"equal":1,"later":0,"missing":1,"wrong":1,"extra":1,"examples":\[".*"\]\}\}\n$`, r.stdout)

	r = run(t.Context(), "reindex", "--data", o.DataDir, "jobs")
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	require.Contains(t, r.stdout, "jobs: requested")
	d, _ := startTestDaemon(t, o)
	rebuilt := func(index string) func() bool {
		return func() bool {
			entries, err := filepath.Glob(filepath.Join(o.DataDir, "jobs", "index-*[0-9]"))
			return err == nil && len(entries) == 1 && filepath.Base(entries[0]) == index
		}
	}
	servertest.Until(t.Context(), rebuilt("index-0002.v1"))
	require.Equal(t, `{"v":2}`, servertest.Get(d.HTTPHandler(), "/documents/jobs/a").Body.String())
	require.Contains(t, check().stdout, "jobs: 3 ids are as in the queue\n")
	require.Equal(t, cli.ExitOK, run(t.Context(), "reindex", "--data", o.DataDir, "jobs").status)
	servertest.Until(t.Context(), rebuilt("index-0003.v1"))

	for _, c := range []struct {
		args    []string
		status  int
		problem string
	}{
		{[]string{"check", "--data", o.DataDir, "--ids"}, cli.ExitUsage, "--ids needs --collection NAME=QUEUEDIR"},
		{[]string{"reindex", "--data", o.DataDir}, cli.ExitUsage, "an argument is missing"},
		{[]string{"reindex", "jobs"}, cli.ExitUsage, "data"},
		{[]string{"reindex", "--data", o.DataDir, "jobs", "others"}, cli.ExitFailure, "has no index of collection others, only of jobs"},
		{[]string{"reindex", "--data", t.TempDir(), "jobs"}, cli.ExitFailure, "has no index"},
	} {
		r := run(t.Context(), c.args...)
		require.Equal(t, c.status, r.status, c.args)
		require.Contains(t, r.lastLine(), c.problem)
	}
}

// A queue that was restored from an older copy and continued is served after a reindex.
func TestReindexAfterFork(t *testing.T) {
	queueDir, older := t.TempDir(), t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	require.NoError(t, os.CopyFS(older, os.DirFS(queueDir)))
	servertest.Fill(t, queueDir, "b", `{"id":"b"}`)
	o := testOptions(t, queueDir)
	indexOnce(t, o)
	require.NoError(t, os.RemoveAll(queueDir))
	servertest.Fill(t, older, "c", `{"id":"c"}`)
	require.NoError(t, os.CopyFS(queueDir, os.DirFS(older)))
	d, _ := startTestDaemon(t, o)
	servertest.Until(t.Context(), func() bool {
		return strings.Contains(servertest.Get(d.HTTPHandler(), "/readyz").Body.String(), "reading the queue failed")
	})
	require.Equal(t, cli.ExitOK, run(t.Context(), "reindex", "--data", o.DataDir, "jobs").status)
	waitReady(t, d)
	require.Equal(t, http.StatusOK, servertest.Get(d.HTTPHandler(), "/documents/jobs/c").Code)
	require.Equal(t, http.StatusNotFound, servertest.Get(d.HTTPHandler(), "/documents/jobs/b").Code)
}
