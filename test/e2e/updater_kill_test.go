package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
)

// TestUpdaterKilled kills the updater with -9 again and again while it appends
// a file. No document that it said was flushed may be missing afterwards, and
// going on with --resume may neither lose nor repeat a line.
func TestUpdaterKilled(t *testing.T) {
	t.Parallel()
	documents := corpus(t)[:20_000]
	dir := t.TempDir()
	queue, file := filepath.Join(dir, "queue"), filepath.Join(dir, "input.ndjson")
	require.NoError(t, os.Mkdir(queue, 0o755)) // dump wants one, however early the first kill is
	require.NoError(t, os.WriteFile(file, ndjson(documents), 0o644))
	args := []string{
		"append", "--queue", queue, "--resume", "--segment-size", "1MiB", "--flush-every", "100", file,
	}

	random, tally := testseed.Rand(t), crashtest.NewTally(t, "kills")
	acknowledged, killed := 0, 0
	for killed < crashtest.Share(50, 400) {
		updater := start(t, nil, "docstore-updater", args...)
		time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		select {
		case <-updater.exited:
			// All of it is in: there is nothing more to interrupt.
			require.Equal(t, 0, updater.ProcessState.ExitCode(), updater.output.String())
			require.Equal(t, len(documents), len(dump(t, queue)))
			require.NoError(t, os.RemoveAll(queue))
			require.NoError(t, os.Mkdir(queue, 0o755))
			acknowledged = 0
			continue
		default:
		}
		updater.kill()
		killed++
		tally.Case()
		acknowledged += flushed(updater.output.String())
		if killed%10 == 0 {
			requirePrefix(t, documents, dump(t, queue), acknowledged)
		}
	}
	start(t, nil, "docstore-updater", args...).wait(t)
	require.Equal(t, string(ndjson(documents)), string(bytes.Join(dump(t, queue), nil)))
}

// requirePrefix checks that the queue holds the first lines of the input, each
// once, and at least those that were acknowledged.
func requirePrefix(t *testing.T, documents []document, lines [][]byte, acknowledged int) {
	t.Helper()
	require.GreaterOrEqual(t, len(lines), acknowledged, "documents acknowledged and lost")
	require.LessOrEqual(t, len(lines), len(documents))
	for i, line := range lines {
		require.Equal(t, string(documents[i].line)+"\n", string(line), "line %d", i+1)
	}
}

// flushed reads from the updater's log how many documents of its run it has
// said were flushed.
func flushed(log string) int {
	most := 0
	for line := range strings.Lines(log) {
		var entry struct {
			Msg       string
			Documents int
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "flushed" {
			most = max(most, entry.Documents)
		}
	}
	return most
}

// dump returns the queue's lines. A queue that was killed before its first
// flush has none.
func dump(t *testing.T, queue string) [][]byte {
	t.Helper()
	cmd := exec.Command(filepath.Join(binaries, "docstore-updater"), "dump", "--queue", queue)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	all, err := io.ReadAll(out)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait(), stderr.String())
	lines := bytes.SplitAfter(all, []byte("\n"))
	return lines[:len(lines)-1] // behind the last newline is nothing
}
