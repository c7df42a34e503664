package files

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/ingest/records"
	"docstore/internal/testseed"
	"docstore/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// record is a record with the cursor after it.
type record struct {
	text    string
	problem string
	at      cursor
}

var testParsing = &records.Options{MaxIDBytes: queue.MaxIDBytes}

// oneByOne is the reference for a Source: it returns the records of a stream and the error
// after them.
func oneByOne(stream []byte, format records.Format) (all []record, failure error) {
	s, err := records.Open(bytes.NewReader(stream), "standard input", format, MaxRecordBytes, testParsing)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }() // read errors were reported
	var at cursor
	for {
		r, err := s.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		at.Offset, at.Lines, at.NoNewline, at.Tail = r.End, r.Number, !r.Newline, tailOf(r.Text)
		all = append(all, record{string(r.Text), problemOf(r.Problem), at})
	}
}

func problemOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// requireAsOneByOne compares a source with batches of batchBytes to oneByOne.
func requireAsOneByOne(t *testing.T, stream []byte, format records.Format, batchBytes int) {
	t.Helper()
	want, failure := oneByOne(stream, format)
	opener, err := NewOpener(nil, Options{Format: format, Stdin: bytes.NewReader(stream), Records: testParsing})
	require.NoError(t, err)
	opened, err := opener.Open(t.Context(), nil)
	require.NoError(t, err)
	s := opened.(*Source)
	in := s.inputs[0]
	s.batchBytes = batchBytes
	defer s.Close()
	for n := 0; ; {
		b, err := s.Next(t.Context())
		if err != nil {
			require.Equal(t, len(want), n)
			require.Equal(t, failure == nil, errors.Is(err, io.EOF), "%v", err)
			if failure != nil {
				require.ErrorContains(t, err, strings.TrimPrefix(failure.Error(), "line "))
			}
			return
		}
		require.NotEmpty(t, b.Records)
		for i, r := range b.Records {
			require.Less(t, n, len(want), "too many records")
			in.stable = true // so that the record has a cursor
			at, err := parseCursor(b.AppendCursor(nil, i))
			in.stable = false
			require.NoError(t, err)
			at.AtEnd = false // not set by oneByOne
			got := record{string(r.Document), problemOf(r.Problem), at}
			if got != want[n] {
				require.Failf(t, "another record", "%+v, %.100q, %s; want %+v, %.100q, %s", got.at, got.text, got.problem, want[n].at, want[n].text, want[n].problem)
			}
			n++
		}
		b.Release()
	}
}

// TestRandomRecords compares the source with oneByOne for random streams and batch sizes.
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

// FuzzRead is TestRandomRecords for arbitrary streams.
func FuzzRead(f *testing.F) {
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
