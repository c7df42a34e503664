package ingest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/ingest/records"
	"docstore/internal/testseed"
	"docstore/queue"
)

// lines is a Source of lines, in batches of 100.
type lines [][]byte

func (l *lines) Next(context.Context) (*Batch, error) {
	if len(*l) == 0 {
		return nil, io.EOF
	}
	b := new(Batch)
	for _, line := range (*l)[:min(len(*l), 100)] {
		b.Records = append(b.Records, Record{Document: line})
	}
	*l = (*l)[len(b.Records):]
	return b, nil
}

func (l *lines) Durable([]byte)       {}
func (l *lines) Lag() (int64, string) { return 0, "" }
func (l *lines) Close() error         { return nil }

// TestProducerKeepsTheOrder: several parsers yield the entries of a single one.
func TestProducerKeepsTheOrder(t *testing.T) {
	random := testseed.Rand(t)
	options := &records.Options{MaxIDBytes: queue.MaxIDBytes}
	var from lines
	var want []records.Entry
	parser := records.NewParser(options)
	for i := range 20_000 {
		line := fmt.Appendf(nil, `{"id":"%d","t":"%s","_delete":%t}`, i, strings.Repeat("x", random.IntN(300)), random.IntN(10) == 0)
		if random.IntN(50) == 0 {
			line = line[:random.IntN(len(line)-1)+1]
		}
		from = append(from, line)
		entry, err := parser.Parse(line)
		if err != nil {
			entry.Document = line
		}
		want = append(want, entry)
	}
	p := newProducer(&from, []Parsing{{options, new(records.Fields)}})
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
	}
	require.True(t, p.complete)
	require.Equal(t, len(want), n)
}
