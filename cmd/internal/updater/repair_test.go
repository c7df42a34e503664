package updater

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
)

func TestRepair(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "queue")
	for _, lines := range []string{
		`{"id":"a","x":1}` + "\n" + `{"id":"b","x":"bbbbbbbb"}` + "\n", `{"id":"c"}` + "\n", `{"id":"d"}` + "\n",
	} {
		ok(t, lines, "append", "--queue", dir, "--codec", "none")
	}
	require.Equal(t, "nothing is damaged\n", ok(t, "", "repair", "--queue", dir).stdout)

	first := filepath.Join(dir, "0000000001.seg")
	content, err := os.ReadFile(first)
	require.NoError(t, err)
	content[bytes.Index(content, []byte("bbbbbbbb"))] ^= 1
	require.NoError(t, os.WriteFile(first, content, 0o644))
	require.NoError(t, os.Remove(filepath.Join(dir, "0000000002.seg")))
	r := run(t.Context(), nil, "check", "--queue", dir)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "repair")

	dry := ok(t, "", "repair", "--queue", dir, "--dry-run")
	require.Contains(t, dry.stdout, "0000000001-0000000001.0001.seg would hold it: 1 entry kept, 1 document lost\n")
	require.Contains(t, dry.stdout, "nothing was changed")
	require.Contains(t, dry.stderr, "segments can be repaired")
	require.NotContains(t, dry.stderr, "segments repaired")
	require.FileExists(t, first)
	require.NoFileExists(t, first+".damaged")
	r = ok(t, "", "repair", "--queue", dir)
	require.Contains(t, r.stdout, `lost: document "b" at 1/128/1`+"\n")
	require.Contains(t, r.stdout, "lost: all from 2/0/0 to before 3/0/0\n")
	require.Contains(t, r.stdout, "0000000001.seg: damaged; ")
	require.Contains(t, r.stdout, "0000000001-0000000001.0001.seg holds it now: 1 entry kept, 1 document lost\n")
	require.Contains(t, r.stdout, "0000000002.seg: missing; ")
	require.Contains(t, r.stderr, "deletes and newer versions")
	require.FileExists(t, first+".damaged")

	require.Contains(t, ok(t, "", "check", "--queue", dir).stdout, "1 of the documents were lost")
	ok(t, `{"id":"b","x":2}`, "append", "--queue", dir)
	r = run(t.Context(), nil, "dump", "--queue", dir)
	require.Equal(t, cli.ExitFailure, r.status, "lost documents are skipped")
	require.Contains(t, r.stderr, "lost to damage")
	require.Equal(t, `{"id":"a","x":1}`+"\n"+`{"id":"d"}`+"\n"+`{"id":"b","x":2}`+"\n", r.stdout)

	last := filepath.Join(dir, "0000000004.seg")
	content, err = os.ReadFile(last)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(last, content[:len(content)-1], 0o644))
	r = run(t.Context(), strings.NewReader(`{"id":"e"}`), "append", "--queue", dir)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "repair --help")
	require.NotContains(t, ok(t, "", "repair", "--queue", dir).stdout, "lost:")
	ok(t, `{"id":"e"}`, "append", "--queue", dir)

	require.NoError(t, os.Remove(filepath.Join(dir, "LOCK")))
	r = run(t.Context(), nil, "repair", "--queue", dir)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "it is a copy")
}
