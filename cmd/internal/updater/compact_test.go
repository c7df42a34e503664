package updater

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
)

func TestCompact(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "queue")
	for range 4 {
		var lines strings.Builder
		for i := range 20 {
			fmt.Fprintf(&lines, "{\"id\":\"%d\",\"text\":\"document\"}\n", i)
		}
		ok(t, lines.String(), "append", "--queue", dir)
	}
	before := dump(t, dir)
	r := ok(t, "", "compact", "--queue", dir)
	require.Contains(t, r.stdout, "3 segments rewritten into 1")
	require.NotContains(t, r.stdout, "removed")
	r = ok(t, "", "compact", "--queue", dir, "--delete-after", "1h")
	require.Contains(t, r.stdout, "0 replaced files removed")
	r = ok(t, "", "compact", "--queue", dir, "--delete-after", "0s")
	require.Contains(t, r.stdout, "3 replaced files removed")
	found, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	require.NoError(t, err)
	require.Len(t, found, 2)
	after := dump(t, dir)
	require.Equal(t, before[len(before)-len(after):], after)
	require.Equal(t, 20, strings.Count(after, "\n"))
	ok(t, "", "check", "--queue", dir)
	ok(t, `{"id":"new"}`, "append", "--queue", dir)
	require.Contains(t, dump(t, dir), `"new"`)

	for _, bad := range [][]string{{"--max-dead", "0"}, {"--max-dead", "1.5"}, {"--max-dead", "NaN"}, {"--delete-after", "-1s"}, {"--erase-deleted-older-than", "-1s"}} {
		r := run(t.Context(), nil, append([]string{"compact", "--queue", dir}, bad...)...)
		require.Equal(t, cli.ExitUsage, r.status)
		require.Contains(t, r.lastLine(), bad[0])
	}
}

func TestErase(t *testing.T) {
	dir := leaveOpen(t, `{"id":"a","text":"the secret"}`+"\n"+`{"id":"b"}`+"\n"+`{"id":"a","_delete":true}`+"\n")
	flags := []string{"compact", "--queue", dir, "--delete-after", "0s", "--erase-deleted-older-than", "0s"}
	r := run(t.Context(), nil, flags...)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "segment 1 of "+dir)
	ok(t, "", "seal", "--queue", dir)
	require.Contains(t, ok(t, "", append(flags[:5:5], "--erase-deleted-older-than", "1h")...).stdout, "0 segments rewritten")
	require.Contains(t, ok(t, "", flags...).stdout, "1 segment rewritten")
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	for _, name := range names {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NotContains(t, string(content), "secret", name)
	}
	require.Equal(t, `{"id":"b"}`+"\n"+`{"id":"a","_delete":true}`+"\n", dump(t, dir))
}

// TestCompactKeepsRetainedManifests: with --bucket the versions of manifests in use stay.
func TestCompactKeepsRetainedManifests(t *testing.T) {
	l := newLifeCycle(t)
	for _, version := range []string{"one", "two", "three", "four", "five"} {
		l.publish(`{"id":"a","v":"` + version + `"}`)
	}
	l.release()
	l.prints("retained: 2", "retain", "--to", "2")
	has := func(want bool, version string) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(l.queue, "*.seg"))
		require.NoError(t, err)
		found := false
		for _, name := range files {
			content, err := os.ReadFile(name) //nolint:gosec // a file of the test
			require.NoError(t, err)
			found = found || bytes.Contains(content, []byte(version))
		}
		require.Equal(t, want, found, version)
	}
	args := []string{"compact", "--queue", l.queue, "--quiet", "--max-dead", "0.01", "--delete-after", "0s", "--keep-manifests", "2"}
	l.prints("rewritten", args...)
	has(false, "one")
	has(true, "two")
	has(false, "three")
	has(true, "four")
	has(true, "five")
	erase := append(slices.Clone(args), "--erase-deleted-older-than", "0s")
	l.fails("documents to be erased stay for manifest 2, 4; ", erase...)
	l.prints("newest: 5", "retain", "--to", "2", "--release")
	l.fails("documents to be erased stay for manifest 4; ", erase...)
	has(false, "two")
	l.prints("rewritten", append(erase, "--keep-manifests", "1")...)
	has(false, "four")
	l.fails("give the directory of the queue that was published", "compact", "--queue", t.TempDir())
}
