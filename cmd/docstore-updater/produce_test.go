package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/ingest/files"
	"docstore/ingest/records"
	"docstore/internal/testseed"
	"docstore/queue"
)

// TestProducerKeepsTheOrder: several parsers yield the entries of a single one.
func TestProducerKeepsTheOrder(t *testing.T) {
	random := testseed.Rand(t)
	options := &records.Options{MaxIDBytes: queue.MaxIDBytes}
	var stream bytes.Buffer
	var want []records.Entry
	parser := records.NewParser(options)
	for i := range 20_000 {
		line := fmt.Appendf(nil, `{"id":"%d","t":"%s","_delete":%t}`, i, strings.Repeat("x", random.IntN(300)), random.IntN(10) == 0)
		if random.IntN(50) == 0 {
			line = line[:random.IntN(len(line)-1)+1]
		}
		stream.Write(append(line, '\n'))
		entry, err := parser.Parse(line)
		if err != nil {
			entry.Document = line
		}
		want = append(want, entry)
	}
	opener, err := files.NewOpener(nil, files.Options{Format: records.FormatNDJSON, Stdin: &stream})
	require.NoError(t, err)
	from, err := opener.Open(t.Context(), nil)
	require.NoError(t, err)
	defer from.Close()
	p := newProducer(from, []parsing{{options, new(records.Fields)}})
	defer p.start(t.Context())()
	n := 0
	for b := range p.filled {
		<-b.parsed
		require.NoError(t, b.err)
		for _, r := range b.Records {
			w := &want[n]
			require.Equal(t, len(w.ID) == 0, r.Problem != nil)
			require.True(t, bytes.Equal(w.ID, r.ID) && bytes.Equal(w.Document, r.Document) && w.Delete == r.Delete, "record %d: %+v", n, r)
			n++
		}
		b.Release()
	}
	require.True(t, p.complete)
	require.Equal(t, len(want), n)
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
