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

// TestUpdaterKilled kills the updater repeatedly with SIGKILL while it appends a file. No
// document that it reported as flushed is lost, and --resume neither loses nor repeats a line.
func TestUpdaterKilled(t *testing.T) {
	t.Parallel()
	documents := corpus(t)[:20_000]
	dir := t.TempDir()
	queue, file := filepath.Join(dir, "queue"), filepath.Join(dir, "input.ndjson")
	require.NoError(t, os.Mkdir(queue, 0o755)) // dump requires the directory
	require.NoError(t, os.WriteFile(file, ndjson(documents), 0o644))
	args := []string{
		"append", "--queue", queue, "--resume", "--segment-size", "1MiB", "--flush-every", "100", "--log-level", "DEBUG", file,
	}

	random, tally := testseed.Rand(t), crashtest.NewTally(t, "kills")
	acknowledged, killed := 0, 0
	for killed < crashtest.Share(50, 400) {
		updater := start(t, nil, "docstore-updater", args...)
		time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		select {
		case <-updater.Exited:
			// All lines are appended.
			require.Equal(t, 0, updater.ProcessState.ExitCode(), updater.Output.String())
			require.Equal(t, len(documents), len(dump(t, queue)))
			require.NoError(t, os.RemoveAll(queue))
			require.NoError(t, os.Mkdir(queue, 0o755))
			acknowledged = 0
			continue
		default:
		}
		updater.Kill()
		killed++
		tally.Case()
		acknowledged += flushed(updater.Output.String())
		if killed%10 == 0 {
			requirePrefix(t, documents, dump(t, queue), acknowledged)
		}
	}
	start(t, nil, "docstore-updater", args...).WaitExit(t)
	require.Equal(t, string(ndjson(documents)), string(bytes.Join(dump(t, queue), nil)))
}

// requirePrefix checks that the queue holds the first lines of the input, each once, and at
// least the acknowledged ones.
func requirePrefix(t *testing.T, documents []document, lines [][]byte, acknowledged int) {
	t.Helper()
	require.GreaterOrEqual(t, len(lines), acknowledged, "acknowledged documents were lost")
	require.LessOrEqual(t, len(lines), len(documents))
	for i, line := range lines {
		require.Equal(t, string(documents[i].line)+"\n", string(line), "line %d", i+1)
	}
}

// flushed returns the number of documents that the updater reported as flushed.
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

// dump returns the lines of the queue, none if it was killed before its first flush.
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
	return lines[:len(lines)-1] // nothing follows the last newline
}
