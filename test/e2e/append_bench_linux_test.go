package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// appendCopies is how often the input repeats the corpus, to fill several segments.
const appendCopies = 6

// BenchmarkAppendBesideDisk compares docstore-updater append --codec none, from NDJSON to
// durable sealed segments, with dd conv=fdatasync of the same bytes, run immediately before.
// The input of both is in the page cache.
func BenchmarkAppendBesideDisk(b *testing.B) {
	dir := b.TempDir()
	input, copied, queue := filepath.Join(dir, "input"), filepath.Join(dir, "copy"), filepath.Join(dir, "queue")
	lines := bytes.Repeat(ndjson(corpus(b)), appendCopies)
	require.NoError(b, os.WriteFile(input, lines, 0o644))
	var disk, appending time.Duration
	for b.Loop() {
		disk += timeOf(b, "dd", "if="+input, "of="+copied, "bs=1M", "conv=fdatasync")
		require.NoError(b, os.Remove(copied))
		appending += timeOf(b, filepath.Join(binaries, "docstore-updater"), "append", "--quiet", "--codec", "none", "--queue", queue, input)
		require.NoError(b, os.RemoveAll(queue))
	}
	megabytes := float64(b.N) * float64(len(lines)) / 1e6
	b.ReportMetric(megabytes/disk.Seconds(), "dd-MB/s")
	b.ReportMetric(megabytes/appending.Seconds(), "append-MB/s")
	b.ReportMetric(disk.Seconds()/appending.Seconds(), "append/dd")
	b.ReportMetric(0, "ns/op")
}

// timeOf measures a command after earlier writes have been synced.
func timeOf(b *testing.B, name string, args ...string) time.Duration {
	b.Helper()
	syscall.Sync()
	start := time.Now()
	out, err := exec.Command(name, args...).CombinedOutput()
	took := time.Since(start)
	require.NoError(b, err, "%s", out)
	return took
}
