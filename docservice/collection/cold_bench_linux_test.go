package collection

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"docstore/docservice"
	"docstore/internal/vfs"
	"docstore/queue"
)

// BenchmarkColdGets reads random documents, one at a time and in batches, of a collection
// whose segments, or all files, are dropped from memory before every thousand documents.
// Reads of the device include those of other processes.
func BenchmarkColdGets(b *testing.B) {
	const (
		documents     = 1_000_000
		documentBytes = 400 // as stored by s2
		turn          = 1_000
	)
	dir := b.TempDir()
	f := newFixture(b, vfs.OS, dir)
	w, err := queue.OpenWriter(f.queueDir, &queue.WriterOptions{Codec: "none"})
	require.NoError(b, err)
	document := []byte(strings.Repeat("document", documentBytes/8))
	id := func(dst []byte, n int) []byte { return fmt.Appendf(dst, "job-%08x", uint32(n)*2654435761) }
	for n := range documents {
		_, err := w.Append(id(nil, n), document)
		require.NoError(b, err)
	}
	require.NoError(b, w.Close())
	c := f.ready()
	require.NoError(b, c.serving.Load().index.Flush())
	require.NoError(b, c.serving.Load().index.WaitIdle(b.Context()))
	random := rand.New(rand.NewPCG(1, 2))
	var ids [turn][]byte
	var dst []byte
	for _, size := range []int{1, 50} {
		read := func(from int) (err error) {
			if size == 1 {
				dst, err = c.Get(dst[:0], ids[from])
				return err
			}
			var answers []Answer
			dst, answers, err = c.GetMany(dst[:0], ids[from:from+size], docservice.MaxReplyBytes)
			for i := range answers {
				if answers[i].Err != nil {
					return answers[i].Err
				}
			}
			return err
		}
		for _, dropped := range []struct{ name, dir string }{{"segments", f.queueDir}, {"all", dir}} {
			b.Run(fmt.Sprintf("batch=%d/cold=%s", size, dropped.name), func(b *testing.B) {
				var used usage
				for b.Loop() {
					for i := range ids {
						ids[i] = id(ids[i][:0], random.IntN(documents))
					}
					dropPages(b, dropped.dir)
					if dropped.dir != dir {
						f.readIndex() // an earlier benchmark may have dropped it
					}
					before := usageNow(b, dir)
					for from := 0; from < turn; from += size {
						require.NoError(b, read(from))
					}
					used.add(before, usageNow(b, dir))
				}
				n := float64(b.N * turn)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(n/used.elapsed.Seconds(), "documents/s")
				b.ReportMetric(float64(used.cpu.Nanoseconds())/1e3/n, "cpu-us/document")
				b.ReportMetric(float64(used.faults)/n, "faults/document")
				b.ReportMetric(float64(used.reads)/n, "reads/document")
				b.ReportMetric(float64(used.bytes)/1e3/n, "kB/document")
			})
		}
	}
}

// readIndex reads the tables of the first index into memory.
func (f *fixture) readIndex() {
	for _, path := range f.indexFiles(firstIndex, ".table") {
		_, err := os.ReadFile(path)
		require.NoError(f.t, err)
	}
}

// usage is a use of the machine.
type usage struct {
	elapsed, cpu time.Duration
	faults       int64 // major
	reads        int64 // of the device, by all processes
	bytes        int64 // read from it by this process
}

func usageNow(b *testing.B, dir string) usage {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return usage{
		elapsed: time.Duration(time.Now().UnixNano()), cpu: time.Duration(u.Utime.Nano() + u.Stime.Nano()),
		faults: u.Majflt, reads: deviceReads(b, dir), bytes: u.Inblock * 512,
	}
}

func (u *usage) add(from, to usage) {
	u.elapsed += to.elapsed - from.elapsed
	u.cpu += to.cpu - from.cpu
	u.faults += to.faults - from.faults
	u.reads += to.reads - from.reads
	u.bytes += to.bytes - from.bytes
}

// deviceReads returns the number of completed reads of the device that holds a directory, 0
// if it is not a block device.
func deviceReads(b *testing.B, dir string) int64 {
	var stat unix.Stat_t
	require.NoError(b, unix.Stat(dir, &stat))
	line, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(stat.Dev), unix.Minor(stat.Dev)))
	if err != nil {
		return 0
	}
	reads, err := strconv.ParseInt(strings.Fields(string(line))[0], 10, 64)
	require.NoError(b, err)
	return reads
}
