//go:build unix

package ingest_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"docstore/ingest"
	"docstore/ingest/files"
	"docstore/ingest/records"
	"docstore/internal/jobs"
	"docstore/queue"
	"docstore/queue/shardset"
)

// BenchmarkReplace replaces a state of documents of 1 KB by one in which 1 % of them have changed.
// times-reading is its time as a multiple of the time in which the same file is read and parsed,
// which is measured in turn with it; cpu-times-reading is that of the processor time, which depends
// less on other programs.
func BenchmarkReplace(b *testing.B) {
	for _, count := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint("records=", count), func(b *testing.B) {
			dir, names := b.TempDir(), [2]string{}
			for i := range names {
				names[i] = writeDump(b, filepath.Join(dir, fmt.Sprint(i, ".ndjson")), count, i)
			}
			replaceBy(b, filepath.Join(dir, "queue"), names[0])
			var reading, replacing, readingCPU, replacingCPU time.Duration
			for turn := 1; b.Loop(); turn++ {
				begun, begunCPU := time.Now(), processorTime(b)
				readAll(b, names[turn%2])
				reading, readingCPU = reading+time.Since(begun), readingCPU+processorTime(b)-begunCPU
				begun, begunCPU = time.Now(), processorTime(b)
				done := replaceBy(b, filepath.Join(dir, "queue"), names[turn%2])
				replacing, replacingCPU = replacing+time.Since(begun), replacingCPU+processorTime(b)-begunCPU
				require.InEpsilon(b, count/100, done.Changed, 0.2)
				require.Equal(b, int64(count), done.Equal+done.Changed)
			}
			b.ReportMetric(replacing.Seconds()/reading.Seconds(), "times-reading")
			b.ReportMetric(replacingCPU.Seconds()/readingCPU.Seconds(), "cpu-times-reading")
			b.ReportMetric(replacing.Seconds()/float64(b.N), "s/replace")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// processorTime returns the processor time of this process.
func processorTime(b *testing.B) time.Duration {
	var used unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// writeDump writes documents, of which 1 % differ from those of version 0.
func writeDump(b *testing.B, name string, count, version int) string {
	file, err := os.Create(name)
	require.NoError(b, err)
	w := bufio.NewWriter(file)
	random, postings := rand.New(rand.NewPCG(uint64(version), 0)), jobs.New(1)
	for i := range count {
		v := 0
		if random.IntN(100) == 0 {
			v = version
		}
		fmt.Fprintf(w, `{"id":"job-%d","version":%d,"posting":%s}`+"\n", i, v, postings.Next())
	}
	require.NoError(b, errors.Join(w.Flush(), file.Close()))
	return name
}

func openDump(b *testing.B, name string) ingest.Source {
	opener, err := files.NewOpener([]string{name}, files.Options{Format: records.FormatNDJSON})
	require.NoError(b, err)
	from, err := opener.Open(b.Context(), nil)
	require.NoError(b, err)
	return from
}

// readAll reads and parses a file.
func readAll(b *testing.B, name string) {
	from := openDump(b, name)
	defer from.Close()
	require.NoError(b, ingest.ReadAll(b.Context(), from))
}

func replaceBy(b *testing.B, dir, name string) ingest.Replaced {
	w, err := shardset.Open(dir, &shardset.Options{SegmentBytes: queue.MaxSegmentBytes})
	require.NoError(b, err)
	from := openDump(b, name)
	defer from.Close()
	done, err := ingest.Replace(b.Context(), from, w, ingest.ReplaceOptions{Dir: dir, MaxDeletes: 0.01})
	require.NoError(b, err)
	require.NoError(b, w.Close())
	return done
}
