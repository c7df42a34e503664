package updater

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/internal/crashtest"
	"docstore/internal/testseed"
)

func TestCheckAsJSON(t *testing.T) {
	dir := t.TempDir()
	ok(t, a1+"\n"+a2, "append", "--queue", dir)
	r := ok(t, "", "check", "--queue", dir, "--json")
	require.Regexp(t, `(?s)^\{\n  "segments": 1,\n  "blocks": 1,\n  "documents": 2,.*"damage": \[\],\n  "unlisted_damage": 0,\n  "missing": \[\]\n\}\n$`, r.stdout)
	segments, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	require.NoError(t, err)
	require.NoError(t, os.Truncate(segments[0], 100))
	r = run(t.Context(), nil, "check", "--queue", dir, "--json")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stdout, segments[0])
	require.Contains(t, r.lastLine(), "is damaged in ")
}

// TestCheckFindsEveryWrongByte changes every byte of sealed segments, with every codec, and
// of a rewrite, and truncates them at every length.
func TestCheckFindsEveryWrongByte(t *testing.T) {
	random := testseed.Rand(t)
	dir := t.TempDir()
	for n, codec := range []string{"none", "s2", "zstd", "s2", "none"} {
		var lines strings.Builder
		for i := range 5 {
			fmt.Fprintf(&lines, "{\"id\":\"%d\",\"text\":%q}\n", i, strings.Repeat(fmt.Sprint("document ", n), 9))
		}
		ok(t, lines.String(), "append", "--queue", dir, "--codec", codec)
		if n == 1 {
			ok(t, "", "compact", "--queue", dir, "--delete-after", "0s")
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	require.NoError(t, err)
	require.Len(t, files, 5)
	require.Contains(t, files[0], "0000000001-0000000001.0001.seg")
	ok(t, "", "check", "--queue", dir)
	requireFound := func(path string, content []byte, how string) {
		require.NoError(t, os.WriteFile(path, content, 0o600))
		r := run(t.Context(), nil, "check", "--queue", dir)
		require.Equal(t, cli.ExitFailure, r.status, "%s %s: %s", filepath.Base(path), how, r.stdout)
		require.Contains(t, r.stdout, path)
	}
	step := crashtest.Share(5, 1)
	for _, path := range files {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		crashtest.Damage(random, content, step, func(damaged []byte, how string) { requireFound(path, damaged, how) })
		require.NoError(t, os.WriteFile(path, content, 0o600))
	}
	ok(t, "", "check", "--queue", dir)
}
