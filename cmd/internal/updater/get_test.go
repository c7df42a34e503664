package updater

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/queue"
)

func TestGetAndDelete(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "queue")
	appendLines := func(lines ...string) { ok(t, strings.Join(lines, "\n"), "append", "--queue", dir, "--quiet") }
	appendLines(`{"id":"a","v":1}`, `{"id":"b","v":1}`, `{"id":"old","_expires":"2020-01-01T00:00:00Z"}`, `{"id":"bytes","_document_base64":"/w=="}`)
	appendLines(`{"id":"a","v":2}`)
	require.Equal(t, `{"id":"a","v":2}`+"\n", ok(t, "", "get", "a", "--queue", dir).stdout)
	require.Equal(t, "\xff\n", ok(t, "", "get", "bytes", "--queue", dir).stdout)

	ok(t, "", "delete", "a", "none", "--queue", dir)
	for id, why := range map[string]string{"a": "it was deleted, at ", "old": "it expired at 2020-01-01T00:00:00Z", "c": "no entry with this id"} {
		r := run(t.Context(), nil, "get", id, "--queue", dir)
		require.Equal(t, cli.ExitFailure, r.status)
		require.Contains(t, r.lastLine(), why)
		require.Empty(t, r.stdout)
	}
	require.Equal(t, `{"id":"b","v":1}`+"\n", ok(t, "", "get", "b", "--queue", dir).stdout)

	var got []string
	for line := range strings.Lines(ok(t, "", "get", "a", "--versions", "--queue", dir).stdout) {
		var v version
		require.NoError(t, json.Unmarshal([]byte(line), &v))
		require.False(t, v.Appended.IsZero())
		_, err := queue.ParseAddress(v.Address)
		require.NoError(t, err)
		got = append(got, fmt.Sprintf("%s %v", v.Document, v.Delete))
	}
	require.Equal(t, []string{`{"id":"a","v":1} false`, `{"id":"a","v":2} false`, " true"}, got)
	require.Contains(t, ok(t, "", "get", "bytes", "--versions", "--queue", dir).stdout, `"document_base64":"/w=="`)
	require.Contains(t, ok(t, "", "get", "old", "--versions", "--queue", dir).stdout, `"expires":"2020-01-01T00:00:00Z"`)
	require.Equal(t, cli.ExitFailure, run(t.Context(), nil, "get", "c", "--versions", "--queue", dir).status)
}

func TestGetAndDeleteRefuseBadInput(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "queue")
	ok(t, `{"id":"a"}`, "append", "--queue", dir, "--quiet")
	long := strings.Repeat("x", queue.MaxIDBytes+1)
	for _, test := range []struct {
		arguments []string
		status    int
		problem   string
	}{
		{[]string{"get", "", "--queue", dir}, cli.ExitUsage, "want 1 to 1024"},
		{[]string{"get", long, "--queue", dir}, cli.ExitUsage, "has 1025 bytes"},
		{[]string{"get", "a", "--queue", dir + "x"}, cli.ExitFailure, "no queue in"},
		{[]string{"delete", "a", long, "--queue", dir}, cli.ExitUsage, "has 1025 bytes"},
		{[]string{"delete", "--queue", dir}, cli.ExitUsage, "an argument is missing"},
		{[]string{"delete", "a", "--queue", dir + "x"}, cli.ExitFailure, "no queue in"},
		{[]string{"delete", "a", "--queue", t.TempDir()}, cli.ExitFailure, "no queue in"},
	} {
		r := run(t.Context(), nil, test.arguments...)
		require.Equal(t, test.status, r.status, "%v: %s", test.arguments, r.stderr)
		require.Contains(t, r.stderr, test.problem)
	}
	require.Equal(t, "{\"id\":\"a\"}\n", ok(t, "", "get", "a", "--queue", dir).stdout, "nothing was deleted")
}
