package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/records"
	"docstore/internal/testseed"
	"docstore/queue"
)

// oneByOne is the reference for a producer: it reads and parses the records sequentially,
// and returns the items and the error after them.
func oneByOne(stream []byte, format records.Format) (items []item, failure error) {
	in := &input{stdin: true, format: format}
	s, err := in.decode(bytes.NewReader(stream), nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }() // read errors were reported
	parser := records.NewParser(testParsing)
	var at cursor
	for {
		record, err := s.Next()
		if errors.Is(err, io.EOF) {
			return items, nil
		}
		if err != nil {
			return items, err
		}
		at.moveAfter(record, nil)
		at.Tail = tailOf(record.Text)
		it := item{text: bytes.Clone(record.Text), at: at, problem: record.Problem}
		if it.problem == nil {
			it.entry, it.problem = parseDocument(parser, it.text)
		}
		items = append(items, it)
	}
}

var testParsing = &records.Options{MaxIDBytes: queue.MaxIDBytes}

// requireAsOneByOne compares a producer with batches of batchBytes to oneByOne.
func requireAsOneByOne(t *testing.T, stream []byte, format records.Format, batchBytes int) {
	t.Helper()
	want, failure := oneByOne(stream, format)
	p := newProducer(bytes.NewReader(stream), testParsing)
	p.batchBytes = batchBytes
	stop := p.start(t.Context(), []*input{{stdin: true, stable: true, format: format}})
	defer stop()
	n := 0
	var err error
	for b := range p.filled {
		<-b.parsed
		require.NoError(t, err, "no batch may follow an error")
		for i := range b.items {
			require.Less(t, n, len(want), "too many records")
			requireSameItem(t, &want[n], &b.items[i])
			n++
		}
		err = b.err
		p.recycle(b)
	}
	require.Equal(t, len(want), n)
	require.Equal(t, failure == nil, p.complete)
	if failure != nil {
		require.ErrorContains(t, err, failure.Error())
	}
}

func requireSameItem(t *testing.T, want, got *item) {
	t.Helper()
	got.at.AtEnd = false // not set by oneByOne
	same := want.at == got.at && (want.problem == nil) == (got.problem == nil) &&
		bytes.Equal(want.entry.ID, got.entry.ID) && bytes.Equal(want.entry.Document, got.entry.Document) &&
		want.entry.Delete == got.entry.Delete && want.entry.Expires.Equal(got.entry.Expires)
	if same && want.problem != nil {
		same = want.problem.Error() == got.problem.Error()
	}
	if !same {
		require.Failf(t, "another item", "%+v, %.100q, %v; want %+v, %.100q, %v", got.at, got.text, got.problem, want.at, want.text, want.problem)
	}
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

// TestRandomRecords compares the producer with oneByOne for random streams and batch sizes.
func TestRandomRecords(t *testing.T) {
	random := testseed.Rand(t)
	for range 6 {
		var stream bytes.Buffer
		for i := range random.IntN(4000) {
			stream.Write(randomRecord(random, i))
			stream.WriteByte('\n')
		}
		text := stream.Bytes()
		if random.IntN(2) == 0 {
			text = bytes.TrimSuffix(text, []byte("\n"))
		}
		requireAsOneByOne(t, text, records.FormatNDJSON, 1+random.IntN(batchBytes))
	}
}

// randomRecord returns a valid or invalid line, sometimes as long as several batches.
func randomRecord(r *rand.Rand, i int) []byte {
	text := strings.Repeat("x", r.IntN(300))
	switch r.IntN(400) {
	case 0:
		text = strings.Repeat("y", batchBytes*r.IntN(4)+r.IntN(batchBytes))
	case 1, 2, 3:
		return nil // blank
	case 4, 5, 6:
		return []byte(text) // not JSON
	case 7, 8:
		return fmt.Appendf(nil, `{"id":"%d","t":"%s"`, i, text)
	case 9:
		return fmt.Appendf(nil, `{"t":"%s"}`, text)
	case 10, 11:
		return fmt.Appendf(nil, `{"id":"%d","_delete":true}`, i)
	case 12, 13:
		return fmt.Appendf(nil, `{"_id_base64":"%s","_document_base64":"%s"}`,
			base64.StdEncoding.EncodeToString(fmt.Append(nil, i)), base64.StdEncoding.EncodeToString([]byte(text)))
	case 14:
		return fmt.Appendf(nil, `{"id":"\u00e9%d\n","t":"%s","_expires":"2040-01-01T00:00:00Z"}`, i, text)
	}
	return fmt.Appendf(nil, `{"id":"%d","t":"%s"}`, i, text)
}

// FuzzProduce is TestRandomRecords for arbitrary streams.
func FuzzProduce(f *testing.F) {
	formats := records.Formats()
	for _, seed := range []string{
		`{"id":"a"}` + "\n" + `{"id":"a"` + "\n\n" + `{"id":"b"}`, "id,x\na,1\nb\n\"c", `[{"id":1},{},{"id":`, "\ufeff{}\n",
	} {
		for format := range formats {
			f.Add([]byte(seed), uint8(format))
		}
	}
	f.Fuzz(func(t *testing.T, stream []byte, format uint8) {
		requireAsOneByOne(t, stream, formats[int(format)%len(formats)], 16)
	})
}
