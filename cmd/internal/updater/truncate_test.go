package updater

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
)

// TestTruncate removes an ingest, and repairs a queue whose newest segment was deleted.
func TestTruncate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "queue")
	input := filepath.Join(t.TempDir(), "input")
	lines := []string{`{"id":"a"}`, `{"id":"b"}`, `{"id":"c"}`, `{"id":"a","bad":1}`, `{"id":"d","bad":1}`}
	ingest := func(count int) result {
		write(t, input, strings.Join(lines[:count], "\n")+"\n")
		return run(t.Context(), nil, "append", "--queue", dir, "--codec", "none", "--resume", "--quiet", input)
	}
	for _, count := range []int{1, 3} {
		r := ingest(count)
		require.Equal(t, cli.ExitOK, r.status, r.stderr)
	}
	var stats queueStats
	require.NoError(t, json.Unmarshal([]byte(ok(t, "", "stats", "--queue", dir, "--json").stdout), &stats))
	require.Contains(t, ok(t, "", "stats", "--queue", dir).stdout, "the queue ends at "+stats.End+"\n")
	good := dump(t, dir)
	require.Equal(t, cli.ExitOK, ingest(5).status)

	dry := ok(t, "", "truncate", "--queue", dir, "--to", stats.End, "--dry-run").stdout
	require.Contains(t, dry, "2 entries from "+stats.End+" to before 4/0/0 would be removed from the queue\n")
	require.Contains(t, dry, "0000000003.seg would be removed\n")
	require.Contains(t, dry, "nothing was changed\n")
	require.NotEqual(t, good, dump(t, dir))
	out := ok(t, "", "truncate", "--queue", dir, "--to", stats.End).stdout
	require.Contains(t, out, "2 entries from "+stats.End+" to before 4/0/0 removed from the queue\n")
	require.Contains(t, out, "the queue ends at "+stats.End+"\n")
	require.Equal(t, good, dump(t, dir))
	ok(t, "", "check", "--queue", dir)

	// The input is corrected and appended from the end of the queue.
	lines[3], lines[4] = `{"id":"a","good":1}`, `{"id":"d"}`
	require.Equal(t, cli.ExitOK, ingest(5).status)
	require.Equal(t, strings.Join(lines, "\n")+"\n", dump(t, dir))

	require.NoError(t, os.Remove(filepath.Join(dir, "0000000004.seg")))
	r := run(t.Context(), nil, "check", "--queue", dir)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stdout, "missing: segment 4\n")
	r = ingest(5)
	require.Equal(t, cli.ExitFailure, r.status)
	advice := "docstore-updater truncate --queue " + dir + " --to 3"
	require.Contains(t, r.lastLine(), advice)
	out = ok(t, "", strings.Fields(advice)[1:]...).stdout
	require.Contains(t, out, "segment 4 is missing")
	require.Equal(t, good, dump(t, dir))
	require.Equal(t, cli.ExitOK, ingest(5).status)
	require.FileExists(t, filepath.Join(dir, "0000000005.seg"))
	require.Equal(t, strings.Join(lines, "\n")+"\n", dump(t, dir))
	ok(t, "", "check", "--queue", dir)

	out = ok(t, "", "truncate", "--queue", dir, "--to", "0").stdout
	require.Contains(t, out, "the queue has no entries\n")
	require.Empty(t, dump(t, dir))
	r = run(t.Context(), nil, "truncate", "--queue", dir, "--to", "6")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "there is no segment 7, the highest is 5")
}
