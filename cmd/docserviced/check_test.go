package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/internal/crashtest"
	"docstore/internal/testseed"
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
	fill(t, queueDir, pairs...)
	o := testOptions(t, queueDir)
	indexOnce(t, o)
	target := filepath.Join(t.TempDir(), "copy") // a checkpoint has tables
	require.Equal(t, cli.ExitOK, run(t.Context(), "checkpoint", "--data", o.dataDir, target).status)
	files, err := filepath.Glob(filepath.Join(target, "jobs", "index-0001", "*"))
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
	fill(t, queueDir, "a", `{"id":"a"}`)
	older := t.TempDir()
	require.NoError(t, os.CopyFS(older, os.DirFS(queueDir)))
	fill(t, queueDir, "b", `{"id":"b"}`)
	o := testOptions(t, queueDir)
	indexOnce(t, o)
	check := func(queue string) result {
		return run(t.Context(), "check", "--data", o.dataDir, "--collection", "jobs="+queue)
	}
	r := check(queueDir)
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	fill(t, older, "c", `{"id":"c"}`)
	r = check(older)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stdout, "jobs: the queue in "+older+" does not continue the history of the index: ")
	require.Contains(t, r.stdout, "forked")
	r = run(t.Context(), "check", "--data", o.dataDir, "--collection", "others="+queueDir)
	require.Contains(t, r.stderr, "has no index of collection others")
}
