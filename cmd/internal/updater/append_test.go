package updater

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/internal/jobs"
	"docstore/queue"
)

func TestBadInput(t *testing.T) {
	const first, last = `{"id":"first"}`, `{"id":"last"}`
	for _, test := range []struct{ name, line, problem string }{
		{"not JSON", `{"id":"a"`, `not JSON: it ends where a comma or } should follow`},
		{"not an object", `["a"]`, `not a JSON object`},
		{"no id", `{"name":"a"}`, `no id: there is no field "id"`},
		{"empty id", `{"id":""}`, `the id in "id" is empty`},
		{"long id", `{"id":"` + strings.Repeat("x", queue.MaxIDBytes+1) + `"}`, `the id in "id" has 1025 bytes; the limit is 1024`},
		{"fraction", `{"id":1.5}`, `the id 1.5 in "id" is a number other than a plain integer: write it as a string`},
		{"large document", `{"id":"a","x":"` + strings.Repeat("x", queue.MaxDocumentBytes) + `"}`, `the document has 16777233 bytes, and at most 16777216 are allowed`},
		{"expiry", `{"id":"a","_expires":"soon"}`, `"soon" in "_expires" is not an RFC 3339 time from 1970 to 2106, for example "2030-12-31T23:59:59Z"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			input := write(t, filepath.Join(dir, "in.ndjson"), first+"\n\n"+test.line+"\n"+last+"\n")

			r := run(t.Context(), nil, "append", "--queue", filepath.Join(dir, "a"), input)
			require.Equal(t, cli.ExitFailure, r.status)
			require.Equal(t, input+":3: "+test.problem+"; correct it, or skip invalid records with --skip-bad", r.lastLine())
			require.Equal(t, first+"\n", dump(t, filepath.Join(dir, "a")))

			r = run(t.Context(), nil, "append", "--queue", filepath.Join(dir, "b"), "--skip-bad", input)
			require.Equal(t, cli.ExitOK, r.status)
			require.Contains(t, r.stderr, fmt.Sprintf(`"msg":"skipped an invalid record","at":%q`, input+":3"))
			require.Contains(t, r.stderr, `"msg":"invalid records were skipped","records":1`)
			require.Equal(t, first+"\n"+last+"\n", dump(t, filepath.Join(dir, "b")))
		})
	}
}

func TestLargestDocument(t *testing.T) {
	queueDir := t.TempDir()
	document := `{"id":"a","x":"` + strings.Repeat("x", queue.MaxDocumentBytes-17) + `"}`
	require.Len(t, document, queue.MaxDocumentBytes)
	ok(t, document+"\n", "append", "--queue", queueDir)
	require.Equal(t, document+"\n", dump(t, queueDir))
}

func TestDocumentsAreTheirLines(t *testing.T) {
	queueDir := t.TempDir()
	input := `{"id":"a", "x":  1}` + "\n" + "\t{\"id\":\"b\"} \r\n" + "\n  \n" + `{"id":123}` + "\n" + `{"id":"123","y":"\u00e9é"}`
	ok(t, input, "append", "--queue", queueDir)
	require.Equal(t, `{"id":"a", "x":  1}`+"\n"+"\t{\"id\":\"b\"} \r\n"+`{"id":123}`+"\n"+`{"id":"123","y":"\u00e9é"}`+"\n", dump(t, queueDir))

	reader, err := queue.OpenReader(queueDir, nil)
	require.NoError(t, err)
	defer reader.Close()
	var ids []string
	require.NoError(t, reader.Scan(t.Context(), queue.Position{}, func(e queue.Entry) error {
		ids = append(ids, string(e.ID))
		return nil
	}))
	require.Equal(t, []string{"a", "b", "123", "123"}, ids)
}

func TestControlFields(t *testing.T) {
	queueDir := t.TempDir()
	const input = `{"id":"a","_expires":"2030-06-01T14:00:00+02:00","x":1}
{"id":"b\"<é","_delete":true}
{"id":"c","_delete":false}
`
	ok(t, input, "append", "--queue", queueDir)
	reader, err := queue.OpenReader(queueDir, nil)
	require.NoError(t, err)
	defer reader.Close()
	var entries []queue.Entry
	require.NoError(t, reader.Scan(t.Context(), queue.Position{}, func(e queue.Entry) error {
		entries = append(entries, e)
		return nil
	}))
	require.Len(t, entries, 3)
	require.Equal(t, time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC).Unix(), entries[0].Expires.Unix())
	require.False(t, entries[0].Deleted)
	require.True(t, entries[1].Deleted)
	require.False(t, entries[2].Deleted)

	again := t.TempDir()
	ok(t, dump(t, queueDir), "append", "--queue", again)
	require.Equal(t, dump(t, queueDir), dump(t, again))

	plain := t.TempDir()
	ok(t, input, "append", "--queue", plain, "--control-fields=false")
	require.Equal(t, input, dump(t, plain, "--control-fields=false"))
}

func TestIDField(t *testing.T) {
	queueDir := t.TempDir()
	const input = `{"id":7.5,"sku":"a"}` + "\n" + `{"sku":"a","_delete":true}` + "\n"
	ok(t, input, "append", "--queue", queueDir, "--id-field", "sku")
	require.Equal(t, input, dump(t, queueDir, "--id-field", "sku"))
}

func TestInputsAreCheckedFirst(t *testing.T) {
	dir := t.TempDir()
	queueDir := filepath.Join(dir, "queue")
	good := write(t, filepath.Join(dir, "good.ndjson"), `{"id":"a"}`+"\n")
	for _, bad := range []string{filepath.Join(dir, "missing.ndjson"), dir} {
		r := run(t.Context(), nil, "append", "--queue", queueDir, good, bad)
		require.Equal(t, cli.ExitFailure, r.status)
		require.Contains(t, r.stderr, bad)
		require.NoDirExists(t, queueDir)
	}
}

func TestQueueInUse(t *testing.T) {
	queueDir := t.TempDir()
	writer, err := queue.OpenWriter(queueDir, nil)
	require.NoError(t, err)
	defer writer.Close()
	r := run(t.Context(), strings.NewReader(`{"id":"a"}`), "append", "--queue", queueDir)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), queueDir)
	require.Contains(t, r.lastLine(), fmt.Sprint(os.Getpid()))
}

// flushLine is a log line of a flush.
type flushLine struct {
	Msg                string
	Documents, Deletes int
	At                 string
}

func flushes(t *testing.T, stderr string) (lines []flushLine) {
	t.Helper()
	for text := range strings.Lines(stderr) {
		var line flushLine
		require.NoError(t, json.Unmarshal([]byte(text), &line), text)
		if line.Msg == "flushed" {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestFlushesAreAcknowledged(t *testing.T) {
	var input strings.Builder
	for i := range 10 {
		fmt.Fprintf(&input, `{"id":%d}`+"\n", i)
	}
	input.WriteString(`{"id":0,"_delete":true}` + "\n")
	args := []string{"append", "--queue", t.TempDir(), "--flush-every", "4", "--flush-interval", "0"}
	want := []flushLine{
		{"flushed", 4, 0, "standard input:4"},
		{"flushed", 8, 0, "standard input:8"},
		{"flushed", 10, 1, "standard input:11"},
	}
	r := ok(t, input.String(), append(args, "--log-level", "DEBUG")...)
	require.Equal(t, want, flushes(t, r.stderr))
	r = ok(t, input.String(), args...)
	require.Equal(t, want[:1], flushes(t, r.stderr), "one every ten seconds")
	require.Contains(t, r.stderr, `"msg":"appended","documents":10,"deletes":1`)

	r = ok(t, input.String(), "append", "--queue", t.TempDir(), "--quiet")
	require.Empty(t, r.stderr)
}

// TestWaitingPipeIsFlushed sends a line and keeps the pipe open until the line can be read
// from the queue.
func TestWaitingPipeIsFlushed(t *testing.T) {
	for _, end := range []string{"the pipe ends", "interrupted"} {
		t.Run(end, func(t *testing.T) {
			queueDir := t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			in, out := io.Pipe()
			ended := make(chan result)
			go func() { ended <- run(ctx, in, "append", "--queue", queueDir, "--flush-interval", "1ms") }()
			_, err := io.WriteString(out, `{"id":"a"}`+"\n")
			require.NoError(t, err)
			reader, err := queue.OpenReader(queueDir, &queue.ReaderOptions{PollInterval: time.Millisecond})
			require.NoError(t, err)
			defer reader.Close()
			found := fmt.Errorf("found")
			require.ErrorIs(t, reader.Tail(t.Context(), queue.Position{}, func(e queue.Entry) error {
				require.Equal(t, "a", string(e.ID))
				return found
			}), found)
			if end == "interrupted" {
				cancel()
			} else {
				require.NoError(t, out.Close())
			}
			r := <-ended
			require.NoError(t, out.Close())
			require.Equal(t, cli.ExitOK, r.status, r.stderr)
			require.Equal(t, `{"id":"a"}`+"\n", dump(t, queueDir))
		})
	}
}

func TestInterruptedInAFile(t *testing.T) {
	dir := t.TempDir()
	input := write(t, filepath.Join(dir, "in.ndjson"), `{"id":"a"}`+"\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := run(ctx, nil, "append", "--queue", filepath.Join(dir, "queue"), input)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, []string{
		"docstore-updater: interrupted before " + input + " was read",
		"docstore-updater: interrupted after " + input + ":0; the queue holds everything up to there; continue with --resume",
	}, r.lastLine(), "before the first line was looked at, or after")
}

func TestSegments(t *testing.T) {
	queueDir := t.TempDir()
	postings := jobs.New(1)
	var input strings.Builder
	for range 3000 {
		input.Write(append(postings.Next(), '\n'))
	}
	ok(t, input.String(), "append", "--queue", queueDir, "--codec", "none", "--segment-size", "1MiB")
	sealed, err := filepath.Glob(filepath.Join(queueDir, "*.seg"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(sealed), 3)
	open, err := filepath.Glob(filepath.Join(queueDir, "*.open"))
	require.NoError(t, err)
	require.Empty(t, open)
	require.Equal(t, input.String(), dump(t, queueDir))
}

// TestLineEndsAtReadBufferEnd: bytes read to detect the end of the file must not overwrite
// the line.
func TestLineEndsAtReadBufferEnd(t *testing.T) {
	var lines strings.Builder
	for i := range 1 << 10 {
		fmt.Fprintf(&lines, `{"id":"%01014d"}`+"\n", i)
	}
	require.Equal(t, 1<<20, lines.Len(), "a power of two for each line")
	input := write(t, filepath.Join(t.TempDir(), "in.ndjson"), lines.String())
	queueDir := t.TempDir()
	ok(t, "", "append", "--queue", queueDir, input)
	require.Equal(t, lines.String(), dump(t, queueDir))
}
