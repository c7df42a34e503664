package main

import (
	"fmt"
	"os"
	"path/filepath"
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
