package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
)

// TestStreamSurvivesKills announces documents through an S3 server while they are appended.
// The updater and the daemon are killed with SIGKILL, and the queue is lost and restored.
// Documents that were served stay served, and the others arrive.
func TestStreamSurvivesKills(t *testing.T) {
	flags := startS3(t).flags
	const url = "s3://docs/debian"
	rounds, perRound := crashtest.Share(6, 80), 50
	documents := corpus(t)[:(rounds+1)*perRound]
	dir := t.TempDir()
	queue, input := filepath.Join(dir, "queue"), filepath.Join(dir, "input.ndjson")
	file, err := os.Create(input)
	require.NoError(t, err)
	defer file.Close()
	written := 0
	write := func() {
		_, err := file.Write(ndjson(documents[written : written+perRound]))
		require.NoError(t, err)
		written += perRound
	}
	args := append([]string{
		"append", "--queue", queue, "--publish", url, "--announce", "--resume", "--follow", "--flush-interval", "5ms", "--format", "ndjson",
	}, flags...)
	args = append(args, input)
	write()
	updater := start(t, nil, "docstore-updater", args...)
	d := startDaemonWith(t, url, filepath.Join(dir, "data"), flags...)
	client := newClient(t, d)
	random := testseed.Rand(t)
	for round := range rounds {
		last := documents[written-1]
		d.waitDocument(t, last.id, last.line)
		d.waitReady(t) // before, an absent id is unavailable
		compareAll(t, client, expected(documents[:written]))
		if random.IntN(3) == 0 {
			d.Kill()
			d.restart(t)
		}
		write()
		updater.Kill()
		if round%3 == 2 {
			require.NoError(t, os.RemoveAll(queue))
			start(t, nil, "docstore-updater", append([]string{"restore", "--bucket", url, "--queue", queue, "--quiet"}, flags...)...).WaitExit(t)
		}
		updater = start(t, nil, "docstore-updater", args...)
	}
	last := documents[written-1]
	d.waitDocument(t, last.id, last.line)
	d.waitReady(t)
	compareAll(t, client, expected(documents))
	updater.Stop(t)
	d.Stop(t)
}
