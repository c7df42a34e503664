//go:build unix

package updater

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/internal/jobs"
)

// benchPosting is a jobs.Posting with the names of columns.
type benchPosting struct {
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

// BenchmarkAppend measures a whole run of append, from the input to durable segments.
func BenchmarkAppend(b *testing.B) {
	generator := jobs.New(1)
	var lines []byte
	var rows []benchPosting
	for len(lines) < 64<<20 {
		posting := generator.NextPosting()
		rows = append(rows, benchPosting(posting))
		lines = append(append(lines, posting.Document()...), '\n')
	}
	var table bytes.Buffer
	w := parquet.NewGenericWriter[benchPosting](&table, parquet.Compression(&parquet.Snappy), parquet.MaxRowsPerRowGroup(20_000))
	_, err := w.Write(rows)
	require.NoError(b, err)
	require.NoError(b, w.Close())

	dir := b.TempDir()
	files := map[string]string{"lines": write(b, filepath.Join(dir, "in.ndjson"), string(lines)), "parquet": write(b, filepath.Join(dir, "in.parquet"), table.String())}
	// 64 objects of 1 MiB.
	require.NoError(b, os.Mkdir(filepath.Join(dir, "objects"), 0o700))
	for n, rest := 100, string(lines); rest != ""; n++ {
		end := strings.LastIndexByte(rest[:min(len(rest), 1<<20)], '\n') + 1
		write(b, filepath.Join(dir, "objects", string(rune('0'+n/100))+string(rune('0'+n/10%10))+string(rune('0'+n%10))), rest[:end])
		rest = rest[end:]
	}
	for _, bench := range []struct {
		name string
		args []string
	}{
		{"input=lines", []string{files["lines"]}},
		{"input=objects", []string{"--from", "file://" + dir + "/objects/"}},
		{"input=parquet", []string{files["parquet"]}},
		{"input=parquet/columns=2", []string{"--keep", "id,title", files["parquet"]}},
	} {
		for _, codec := range []string{"none", "s2"} {
			b.Run(bench.name+"/codec="+codec, func(b *testing.B) {
				b.SetBytes(int64(len(lines)))
				used := cpuTime(b)
				for b.Loop() {
					r := run(b.Context(), nil, append([]string{"append", "--quiet", "--codec", codec, "--queue", b.TempDir()}, bench.args...)...)
					require.Equal(b, cli.ExitOK, r.status, r.stderr)
				}
				documents := float64(len(rows) * b.N)
				b.ReportMetric(documents/b.Elapsed().Seconds(), "documents/s")
				b.ReportMetric(documents/(cpuTime(b)-used).Seconds(), "documents/cpu-s")
			})
		}
	}
}

// cpuTime returns the processor time of this process.
func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
