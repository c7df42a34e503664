package updater

import (
	"bytes"
	"context"
	"crypto/sha256"
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
	"docstore/queue"
)

const someLines = `{"id":"a","x":1}
{"id":"b","x":2}
{"id":"a","_delete":true}
`

func TestSealAndStats(t *testing.T) {
	queueDir := leaveOpen(t, someLines)
	require.Contains(t, ok(t, "", "stats", "--queue", queueDir).stdout, "open")
	require.Equal(t, someLines, dump(t, queueDir))
	ok(t, "", "seal", "--queue", queueDir)
	ok(t, "", "seal", "--queue", queueDir) // nothing left to seal
	require.Equal(t, someLines, dump(t, queueDir))

	var stats queueStats
	require.NoError(t, json.Unmarshal([]byte(ok(t, "", "stats", "--queue", queueDir, "--json").stdout), &stats))
	require.Len(t, stats.Segments, 1)
	require.True(t, stats.Segments[0].Sealed)
	require.Equal(t, "none", stats.Segments[0].Codec)
	require.Equal(t, 1, stats.Totals.Segments)
	require.Equal(t, 1, stats.Totals.Sealed)
	require.Equal(t, int64(2), stats.Totals.Documents)
	require.Equal(t, int64(1), stats.Totals.Deletes)
	require.Equal(t, int64(32), stats.Totals.RawBytes)
	lines := strings.Split(strings.TrimSuffix(ok(t, "", "stats", "--queue", queueDir).stdout, "\n"), "\n")
	require.Len(t, lines, 4)
	require.Equal(t, []string{"segment", "state", "codec", "blocks", "documents", "deletes", "raw", "stored", "file", "last", "appended"}, strings.Fields(lines[0]))
	require.Equal(t, []string{"1", "sealed", "none", "3", "2", "1", "32", "B"}, strings.Fields(lines[1])[:8])
	require.Equal(t, []string{"1", "1", "sealed", "3", "2", "1", "32", "B"}, strings.Fields(lines[2])[:8])
	require.Regexp(t, `^the queue ends at 1/[0-9]+/0$`, lines[3])
}

// TestStatsLive checks a queue in which one of five documents was overwritten, one deleted
// and one has expired.
func TestStatsLive(t *testing.T) {
	queueDir := t.TempDir()
	ok(t, `{"id":"a","x":1}
{"id":"b","x":2}
{"id":"c","_expires":"2001-01-01T00:00:00Z"}
{"id":"d"}
`, "append", "--queue", queueDir, "--codec", "none")
	ok(t, `{"id":"a","x":10}
{"id":"b","_delete":true}
`, "append", "--queue", queueDir, "--codec", "none")

	var stats map[string]any
	require.NoError(t, json.Unmarshal([]byte(ok(t, "", "stats", "--queue", queueDir, "--json").stdout), &stats))
	require.NotContains(t, stats["totals"], "live_bytes")

	out := ok(t, "", "stats", "--queue", queueDir, "--live", "--memory", "1KiB", "--json").stdout
	require.NoError(t, json.Unmarshal([]byte(out), &stats))
	totals := stats["totals"].(map[string]any)
	require.EqualValues(t, 5, totals["documents"])
	require.EqualValues(t, 2, totals["live_documents"])
	require.EqualValues(t, len(`{"id":"d"}{"id":"a","x":10}`), totals["live_bytes"])
	require.Equal(t, totals["stored_bytes"], totals["live_bytes"].(float64)+totals["dead_bytes"].(float64))
	first := stats["segments"].([]any)[0].(map[string]any)
	require.EqualValues(t, 1, first["live_documents"])
	require.EqualValues(t, len(`{"id":"d"}`), first["live_bytes"])

	lines := strings.Split(strings.TrimSuffix(ok(t, "", "stats", "--queue", queueDir, "--live").stdout, "\n"), "\n")
	require.Len(t, lines, 5)
	require.Contains(t, strings.Join(strings.Fields(lines[0]), " "), "file live docs live bytes dead bytes last appended")
	require.Equal(t, []string{"2", "27", "B", "76", "B"}, strings.Fields(lines[3])[len(strings.Fields(lines[3]))-5:])

	require.NoError(t, os.Remove(filepath.Join(queueDir, "0000000001.seg")))
	r := run(t.Context(), nil, "stats", "--queue", queueDir, "--live")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "segment 1 is missing")
}

// TestStatsLiveOfRewrites: a rewrite replaces several segments, and the live bytes of all
// of them count.
func TestStatsLiveOfRewrites(t *testing.T) {
	queueDir := t.TempDir()
	for i := range 4 {
		ok(t, fmt.Sprintf("{\"id\":\"same\",\"x\":%d,\"text\":\"longer than the other\"}\n{\"id\":\"%d\"}\n", i, i), "append", "--queue", queueDir, "--codec", "none")
	}
	require.Contains(t, ok(t, "", "compact", "--queue", queueDir).stdout, "3 segments rewritten into 1")
	var stats struct {
		Segments []struct {
			Segment, Generation int
			LastSegment         int `json:"last_segment"`
			LiveDocuments       int `json:"live_documents"`
			DeadBytes           int `json:"dead_bytes"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(ok(t, "", "stats", "--queue", queueDir, "--live", "--json").stdout), &stats))
	require.Len(t, stats.Segments, 2)
	rewrite := stats.Segments[0]
	require.Equal(t, []int{1, 3, 1, 3, 0}, []int{rewrite.Segment, rewrite.LastSegment, rewrite.Generation, rewrite.LiveDocuments, rewrite.DeadBytes})
	require.Equal(t, 2, stats.Segments[1].LiveDocuments)
	require.Regexp(t, `\n +1-3 +sealed +none `, ok(t, "", "stats", "--queue", queueDir).stdout)
}

// leaveOpen makes a queue as a killed updater leaves it.
func leaveOpen(t *testing.T, lines string) string {
	t.Helper()
	alive, killed := t.TempDir(), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	defer out.Close()
	ended := make(chan result)
	go func() { ended <- run(ctx, in, "append", "--queue", alive, "--codec", "none", "--flush-every", "1") }()
	_, err := io.WriteString(out, lines)
	require.NoError(t, err)
	for flushed := ""; flushed != lines; flushed = dump(t, alive) {
		time.Sleep(time.Millisecond)
	}
	require.NoError(t, os.CopyFS(killed, os.DirFS(alive)))
	cancel()
	require.Equal(t, cli.ExitOK, (<-ended).status)
	return killed
}

func TestCheck(t *testing.T) {
	queueDir := t.TempDir()
	ok(t, someLines, "append", "--queue", queueDir, "--codec", "none")
	require.Regexp(t, `^1 segment, 1 block, 2 documents, 1 delete, \d+ B verified\n$`, ok(t, "", "check", "--queue", queueDir).stdout)

	segments, err := filepath.Glob(filepath.Join(queueDir, "*.seg"))
	require.NoError(t, err)
	require.Len(t, segments, 1)
	bytes, err := os.ReadFile(segments[0])
	require.NoError(t, err)
	at := strings.Index(string(bytes), `"x":2`)
	require.Positive(t, at)
	bytes[at+4] = '3'
	require.NoError(t, os.WriteFile(segments[0], bytes, 0o600))

	r := run(t.Context(), nil, "check", "--queue", queueDir)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stdout, "damaged: ")
	require.Contains(t, r.stdout, segments[0])
	require.Equal(t, "docstore-updater: "+queueDir+" is damaged in 1 place and lacks 0 segments; copy these segments from a machine where they are intact, or, at the source, see repair --help", r.lastLine())

	r = run(t.Context(), nil, "dump", "--queue", queueDir)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Equal(t, `{"id":"a","x":1}`+"\n"+`{"id":"a","_delete":true}`+"\n", r.stdout)
	require.Contains(t, r.stderr, `"msg":"left out","id":"b"`)
	require.Equal(t, "docstore-updater: left out, see above: 1 entry of "+queueDir, r.lastLine())
}

func TestCheckNamesMissingSegments(t *testing.T) {
	queueDir := t.TempDir()
	for range 3 {
		ok(t, someLines, "append", "--queue", queueDir)
	}
	require.NoError(t, os.Remove(filepath.Join(queueDir, "0000000002.seg")))
	r := run(t.Context(), nil, "check", "--queue", queueDir)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stdout, "missing: segment 2\n")
	require.Equal(t, "docstore-updater: "+queueDir+" is damaged in 0 places and lacks 1 segment; copy these segments from a machine where they are intact, or, at the source, see repair --help", r.lastLine())
}

// TestDumpRoundTrip fills a queue as other programs may, and as append does.
func TestDumpRoundTrip(t *testing.T) {
	queueDir := t.TempDir()
	writer, err := queue.OpenWriter(queueDir, nil)
	require.NoError(t, err)
	expires := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, record := range []queue.Record{
		{ID: []byte("good"), Document: []byte(`{"id":"good"}`)},
		{ID: []byte("expires well"), Document: []byte(`{"id":"expires well","_expires":"2030-01-01T00:00:00Z"}`), Expires: expires},
		{ID: []byte("plain"), Document: []byte(`hello`)},
		{ID: []byte("empty"), Document: nil},
		{ID: []byte("lines"), Document: []byte("{\"id\":\n\"lines\"}")},
		{ID: []byte("other \"<é"), Document: []byte(`{"id":"another"}`)},
		{ID: []byte("expires"), Document: []byte(`{"id":"expires"}`), Expires: expires},
		{ID: []byte("delete"), Document: []byte(`{"id":"delete","_delete":true}`)},
		{ID: []byte("wrapped"), Document: []byte(`{"id":"wrapped","_document_base64":""}`)},
		{ID: []byte("\xff"), Document: []byte("\xff\n")},
		{ID: []byte("large"), Document: bytes.Repeat([]byte{0xff}, queue.MaxDocumentBytes), Expires: expires},
	} {
		_, err := writer.Put(record)
		require.NoError(t, err)
	}
	for _, id := range []string{"good", "\xff"} {
		_, err = writer.Delete([]byte(id))
		require.NoError(t, err)
	}
	require.NoError(t, writer.Close())

	dumped := dump(t, queueDir)
	for _, line := range []string{
		`{"id":"good"}`,
		`{"id":"expires well","_expires":"2030-01-01T00:00:00Z"}`,
		`{"id":"plain","_document_base64":"aGVsbG8="}`,
		`{"id":"expires","_expires":"2030-01-01T00:00:00Z","_document":{"id":"expires"}}`,
		`{"_id_base64":"/w==","_delete":true}`,
	} {
		require.Contains(t, dumped, line+"\n")
	}
	again := t.TempDir()
	ok(t, dumped, "append", "--queue", again)
	require.Equal(t, contents(t, queueDir), contents(t, again))
	require.Equal(t, dumped, dump(t, again))

	r := run(t.Context(), nil, "dump", "--queue", queueDir, "--control-fields=false")
	require.Equal(t, cli.ExitFailure, r.status)
	for _, reason := range []string{"not JSON", "more than one line", `the id in the document is \"another\"`, "does not contain its expiry", "a delete needs control fields"} {
		require.Contains(t, r.stderr, reason)
	}
}

// contents returns the entries of a queue as text.
func contents(t *testing.T, queueDir string) (all []string) {
	t.Helper()
	reader, err := queue.OpenReader(queueDir, nil)
	require.NoError(t, err)
	defer reader.Close()
	require.NoError(t, reader.Scan(t.Context(), queue.Position{}, func(e queue.Entry) error {
		var document []byte
		if !e.Deleted {
			document, err = reader.DocumentFor(nil, e.ID, e.Address)
			require.NoError(t, err)
		}
		all = append(all, fmt.Sprintf("%q %v %d %x", e.ID, e.Deleted, expirySeconds(e.Expires), sha256.Sum256(document)))
		return nil
	}))
	return all
}
