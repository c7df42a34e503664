package updater

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
)

// killed is an input of TestSourcesSurviveKills.
type killed struct {
	args    []string
	want    string // documents of the input, a line each
	ordered bool   // the queue has them in this order
}

// parquetText returns a Parquet file with documents of writeFiles' form, and their lines.
func parquetText(t *testing.T, first, rows int) (file, lines string) {
	t.Helper()
	type row struct {
		ID   string `parquet:"id"`
		Text int64  `parquet:"text"`
	}
	var all []row
	var text strings.Builder
	for i := range rows {
		all = append(all, row{fmt.Sprintf("p-%d", first+i), int64(i) * 7919})
		fmt.Fprintf(&text, `{"id":"p-%d","text":%d}`+"\n", first+i, int64(i)*7919)
	}
	var out bytes.Buffer
	w := parquet.NewGenericWriter[row](&out, parquet.MaxRowsPerRowGroup(500))
	_, err := w.Write(all)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.String(), text.String()
}

// killedInputs makes the inputs: files, a directory of several formats, a bucket, Parquet
// files, and several sources at the same time.
func killedInputs(t *testing.T) map[string]killed {
	t.Helper()
	names, lines := writeFiles(t, 3, 2000)
	dir := t.TempDir()
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("docs"))
	server := httptest.NewServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	put := func(name, content string) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		write(t, path, content)
		_, err := backend.PutObject("docs", name, nil, strings.NewReader(content), int64(len(content)), nil)
		require.NoError(t, err)
	}
	rows, rowLines := parquetText(t, 0, 2000)
	moreRows, moreLines := parquetText(t, 2000, 1000)
	put("mixed/1.ndjson", lines[:len(lines)/2+strings.IndexByte(lines[len(lines)/2:], '\n')+1])
	put("mixed/2.parquet", rows)
	rest := lines[len(lines)/2+strings.IndexByte(lines[len(lines)/2:], '\n')+1:]
	put("mixed/date=1/3.ndjson.gz", gzipped(t, rest))
	cells, cellLines := "id,text\n", ""
	for i := range 1000 {
		cells += fmt.Sprintf("c-%d,%d\n", i, i*7919)
		cellLines += fmt.Sprintf(`{"id":"c-%d","text":"%d"}`+"\n", i, i*7919)
	}
	put("mixed/date=2/4.csv", cells)
	mixed := lines[:len(lines)-len(rest)] + rowLines + rest + cellLines
	put("parquet/1.parquet", rows)
	put("parquet/2.parquet", moreRows)
	from := write(t, filepath.Join(dir, "from.yaml"), "sources:\n- {name: a, from: 'file://"+dir+"/mixed/'}\n- {name: b, from: 'file://"+dir+"/parquet/2*'}\n")
	return map[string]killed{
		"files":   {append([]string{"--resume"}, names...), lines, true},
		"objects": {[]string{"--from", "file://" + dir + "/mixed/"}, mixed, true},
		"bucket":  {[]string{"--from", "s3://docs/mixed/", "--s3-endpoint", server.URL, "--s3-path-style"}, mixed, true},
		"parquet": {[]string{"--from", "file://" + dir + "/parquet/*.parquet"}, rowLines + moreLines, true},
		"columns": {[]string{"--from", "file://" + dir + "/parquet/*.parquet", "--drop", "text"}, regexp.MustCompile(`,"text":\d+`).ReplaceAllString(rowLines+moreLines, ""), true},
		"several": {[]string{"--from", from}, mixed + moreLines, false},
	}
}

// TestSourcesSurviveKills kills the updater at random moments. After each restart the queue
// holds no document twice and leaves none out.
func TestSourcesSurviveKills(t *testing.T) {
	kills := crashtest.Share(10, 200)
	random := testseed.Rand(t)
	for name, in := range killedInputs(t) {
		t.Run(name, func(t *testing.T) {
			queueDir := filepath.Join(t.TempDir(), "queue")
			wanted := sortedLines(in.want)
			interrupted := 0
			for range kills {
				args := append([]string{"append", "--queue", queueDir, "--quiet", "--flush-every", "100", "--segment-size", "64KiB"}, in.args...)
				command := exec.Command(os.Args[0], args...)
				command.Env = append(os.Environ(), asCommand+"=1")
				var stderr bytes.Buffer
				command.Stderr = &stderr
				require.NoError(t, command.Start())
				timer := time.AfterFunc(time.Duration(random.IntN(200))*time.Millisecond, func() { _ = command.Process.Kill() })
				err := command.Wait()
				if !timer.Stop() && err != nil {
					interrupted++
				} else {
					require.NoError(t, err, stderr.String())
				}
				if _, err := os.Stat(queueDir); err != nil {
					continue
				}
				got := dump(t, queueDir)
				if in.ordered {
					require.True(t, strings.HasPrefix(in.want, got), "the queue must hold a prefix of the input")
				}
				lines := sortedLines(got)
				require.Len(t, slices.Compact(slices.Clone(lines)), len(lines), "a document is there twice")
				if err == nil {
					require.Equal(t, wanted, lines)
					require.NoError(t, os.RemoveAll(queueDir))
				}
			}
			ok(t, "", append([]string{"append", "--queue", queueDir, "--quiet"}, in.args...)...)
			require.Equal(t, wanted, sortedLines(dump(t, queueDir)))
			t.Logf("%d of %d runs were killed", interrupted, kills)
		})
	}
}
