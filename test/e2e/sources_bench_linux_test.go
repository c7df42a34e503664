package e2e

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"docstore/internal/jobs"
	"docstore/internal/natstest"
)

// BenchmarkAppendFrom appends documents from files, a bucket (versitygw, 30 objects), Kafka
// (kfake, one broker, 4 partitions, keys, no compression) and NATS JetStream (one server, in
// memory), which run in separate processes. It reports documents per second of the processor
// time of both processes, on two processors, besides those of the elapsed time, the processor
// time of each process, and the peak memory of the updater.
func BenchmarkAppendFrom(b *testing.B) {
	s3 := startS3(b)
	for _, format := range []string{"ndjson", "csv", "parquet"} {
		b.Run("source=file/format="+format, func(b *testing.B) {
			dir := b.TempDir()
			writeInput(b, format, dir, 1)
			benchmarkAppend(b, nil, filepath.Join(dir, "00."+format))
		})
		b.Run("source=bucket/format="+format, func(b *testing.B) {
			writeInput(b, format, filepath.Join(s3.dir, format), inputObjects)
			benchmarkAppend(b, s3.server, "--from", "s3://docs/"+format+"/", "--s3-endpoint", s3.address, "--s3-path-style")
		})
	}
	b.Run("source=kafka", func(b *testing.B) {
		broker := exec.Command(os.Args[0])
		broker.Env = append(os.Environ(), asKafka+"=1")
		broker.Stderr = os.Stderr
		stdin, err := broker.StdinPipe()
		require.NoError(b, err)
		stdout, err := broker.StdoutPipe()
		require.NoError(b, err)
		require.NoError(b, broker.Start())
		defer func() { _ = broker.Wait() }() // it ends with its input
		defer stdin.Close()
		url, err := bufio.NewReader(stdout).ReadString('\n')
		require.NoError(b, err)
		benchmarkAppend(b, broker.Process, "--from", strings.TrimSpace(url))
	})
	b.Run("source=nats", func(b *testing.B) {
		s := natstest.Start(b)
		url := fillNATS(b, s)
		benchmarkAppend(b, s.Process(), "--from", url)
	})
}

// inputObjects is the number of objects of a bucket.
const inputObjects = 30

// posting is a jobs.Posting with the names of columns.
type posting struct {
	ID          string      `parquet:"id"`
	Title       string      `parquet:"title"`
	Company     string      `parquet:"company,dict"`
	City        string      `parquet:"city,dict"`
	Country     string      `parquet:"country,dict"`
	Salary      jobs.Salary `parquet:"salary"`
	Employment  string      `parquet:"employment,dict"`
	Remote      bool        `parquet:"remote"`
	Posted      string      `parquet:"posted"`
	URL         string      `parquet:"url"`
	Skills      []string    `parquet:"skills,list"`
	Description string      `parquet:"description"`
}

// writeInput writes the documents to a number of files in a directory.
func writeInput(b *testing.B, format, dir string, files int) {
	require.NoError(b, os.MkdirAll(dir, 0o700))
	postings := jobs.New(1)
	for i := range files {
		file, err := os.Create(filepath.Join(dir, fmt.Sprintf("%02d.%s", i, format)))
		require.NoError(b, err)
		out := bufio.NewWriter(file)
		add, end := newInput(b, format, out)
		for range brokerDocuments / files {
			add(postings.NextPosting())
		}
		end()
		require.NoError(b, out.Flush())
		require.NoError(b, file.Close())
	}
}

// newInput returns functions that write a posting, and the end of the file.
func newInput(b *testing.B, format string, out io.Writer) (add func(jobs.Posting), end func()) {
	switch format {
	case "csv":
		w := csv.NewWriter(out)
		row := func(cells ...string) { require.NoError(b, w.Write(cells)) }
		row("id", "title", "company", "city", "country", "employment", "posted", "url", "skills", "description")
		return func(p jobs.Posting) {
			row(p.ID, p.Title, p.Company, p.City, p.Country, p.Employment, p.Posted, p.URL, strings.Join(p.Skills, ","), p.Description)
		}, func() { w.Flush(); require.NoError(b, w.Error()) }
	case "parquet":
		w := parquet.NewGenericWriter[posting](out, parquet.Compression(&parquet.Snappy), parquet.MaxRowsPerRowGroup(20_000))
		return func(p jobs.Posting) {
			_, err := w.Write([]posting{posting(p)})
			require.NoError(b, err)
		}, func() { require.NoError(b, w.Close()) }
	}
	return func(p jobs.Posting) {
		_, err := out.Write(append(p.Document(), '\n'))
		require.NoError(b, err)
	}, func() {}
}

// benchmarkAppend appends the documents with the default codec, and without compression.
func benchmarkAppend(b *testing.B, broker *os.Process, args ...string) {
	for _, codec := range []string{"none", "s2"} {
		b.Run("codec="+codec, func(b *testing.B) {
			benchmarkAppendOf(b, broker, append([]string{"--codec", codec}, args...)...)
		})
	}
}

func benchmarkAppendOf(b *testing.B, broker *os.Process, args ...string) {
	queue := filepath.Join(b.TempDir(), "queue")
	var elapsed, used, usedByBroker time.Duration
	var peak int64
	for b.Loop() {
		before := processorTime(b, broker)
		updater := exec.Command(filepath.Join(binaries, "docstore-updater"), append([]string{"append", "--quiet", "--queue", queue}, args...)...)
		started := time.Now()
		out, err := updater.CombinedOutput()
		elapsed += time.Since(started)
		require.NoError(b, err, "%s", out)
		used += updater.ProcessState.UserTime() + updater.ProcessState.SystemTime()
		usedByBroker += processorTime(b, broker) - before
		peak = max(peak, updater.ProcessState.SysUsage().(*syscall.Rusage).Maxrss<<10)
		require.NoError(b, os.RemoveAll(queue))
	}
	documents := float64(b.N) * brokerDocuments
	b.ReportMetric(2*documents/(used+usedByBroker).Seconds(), "docs/s-2cpu")
	b.ReportMetric(float64(used.Microseconds())/documents, "us/doc")
	b.ReportMetric(float64(usedByBroker.Microseconds())/documents, "us/doc-broker")
	b.ReportMetric(documents/elapsed.Seconds(), "docs/s-elapsed")
	b.ReportMetric(float64(peak)/1e6, "peak-MB")
	b.ReportMetric(0, "ns/op")
}

// processorTime returns the processor time of a process; nil: none.
func processorTime(b *testing.B, p *os.Process) time.Duration {
	b.Helper()
	if p == nil {
		return 0
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid))
	require.NoError(b, err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var user, system int64
	_, err = fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	require.NoError(b, err)
	return time.Duration(user+system) * time.Second / 100 // ticks
}
