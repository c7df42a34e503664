package updater

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/ingest"
)

// kept reads a dead-letter file.
func kept(t *testing.T, path string) (lines []ingest.DeadLetter) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	for text := range bytes.Lines(content) {
		var line ingest.DeadLetter
		require.NoError(t, json.Unmarshal(text, &line))
		lines = append(lines, line)
	}
	return lines
}

// An invalid line in a followed file must not stop append.
func TestFollowKeepsBadLines(t *testing.T) {
	const maxText = 64 << 10 // of a record that is kept
	r := newResumer(t)
	f := follow(t, r, r.file("log", a1))
	f.expect(a1)
	f.append("not JSON\n{\"no\":\"id\"}\n\xff\n" + strings.Repeat("x", maxText+1) + "\n" + a2 + "\n")
	f.expect(a2)
	result := f.end()
	require.Equal(t, cli.ExitOK, result.status, result.stderr)
	require.Contains(t, result.stderr, `"bad_records":4,`)
	require.Contains(t, result.stderr, `"msg":"invalid records were kept in the dead-letter file"`)

	path := filepath.Join(r.queueDir, badLinesName)
	lines := kept(t, path)
	require.Len(t, lines, 4)
	for i := range lines {
		require.Equal(t, fmt.Sprintf("%s:%d", f.path, i+2), lines[i].At)
		require.NotEmpty(t, lines[i].Problem)
		require.WithinDuration(t, time.Now(), lines[i].Time, time.Hour)
	}
	require.Equal(t, []string{"not JSON", `{"no":"id"}`, ""}, []string{lines[0].Text, lines[1].Text, lines[2].Text})
	require.Equal(t, []byte{0xff}, lines[2].Base64)
	require.Equal(t, maxText+1, lines[3].Bytes)
	require.Len(t, lines[3].Text, maxText)

	// They are before the cursor: the next run does not read them.
	f = follow(t, r, f.path)
	f.append(a3 + "\n")
	f.expect(a1)
	f.expect(a2)
	f.expect(a3)
	require.Equal(t, cli.ExitOK, f.end().status)
	require.Len(t, kept(t, path), 4)
}

func TestBadLinesFlag(t *testing.T) {
	dir := t.TempDir()
	input := write(t, filepath.Join(dir, "input"), a1+"\nbad\n"+a2+"\n")
	file := filepath.Join(dir, "kept")
	appendTo := func(queueDir string, flags ...string) result {
		return run(t.Context(), nil, append(append([]string{"append", "--queue", filepath.Join(dir, queueDir)}, flags...), input)...)
	}
	r := appendTo("a", "--bad-lines", file)
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	require.Equal(t, a1+"\n"+a2+"\n", dump(t, filepath.Join(dir, "a")))
	require.Len(t, kept(t, file), 1)
	require.NoFileExists(t, filepath.Join(dir, "a", badLinesName))

	r = appendTo("b", "--follow", "--skip-bad=false")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), input+":2: ")
	r = appendTo("b", "--bad-lines", file, "--skip-bad=false")
	require.Equal(t, cli.ExitUsage, r.status)
	require.Contains(t, r.stderr, "--bad-lines contradicts --skip-bad=false")

	// A record that cannot be kept is not skipped.
	r = appendTo("c", "--bad-lines", filepath.Join(dir, "missing", "file"))
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "keeping invalid records in "+filepath.Join(dir, "missing", "file"))
	require.Contains(t, r.lastLine(), "choose another file with --bad-lines")
	require.Empty(t, dump(t, filepath.Join(dir, "c")))
}
