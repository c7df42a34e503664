package records

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/internal/eof"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a stream that the test reads to its end.
func open(t *testing.T, r io.Reader, name string, format Format) *Stream {
	t.Helper()
	s, err := Open(r, name, format, testLimit, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// texts reads a stream and returns the texts of its records, or problems after "!".
func texts(t *testing.T, r Reader) (all []string) {
	t.Helper()
	for _, record := range readAll(t, r) {
		if record.Problem != nil {
			all = append(all, "!"+record.Problem.Error())
			continue
		}
		all = append(all, string(record.Text))
	}
	return all
}

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text) // to memory
	_ = w.Close()
	return b.String()
}

func zstded(text string) string {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	defer func() { _ = w.Close() }()
	return string(w.EncodeAll([]byte(text), nil))
}

func TestOpenDetectsFormat(t *testing.T) {
	const (
		lines = `{"id":"a"}` + "\n" + `{"id":"b"}` + "\n"
		array = `[{"id":"a"}, {"id":"b"}]`
		comma = "id\na\nb\n"
		tab   = "id\tx\na\t\"1\"\nb\t,\n"
	)
	ab := []string{`{"id":"a"}`, `{"id":"b"}`}
	for _, test := range []struct {
		name, stream string
		format       Format
		want         []string
	}{
		{"in.ndjson", lines, FormatAuto, ab},
		{"in.csv", lines, FormatNDJSON, ab},
		{"in.json", lines, FormatAuto, ab},
		{"in.json", array, FormatAuto, ab},
		{"in.json", "\ufeff \n" + array + "\n", FormatAuto, ab},
		{"in.json", "\ufeff" + lines, FormatAuto, ab},
		{"in.json", lines, FormatJSON, ab},
		{"in.json", `{"id":"a"}{"id":"b"}`, FormatAuto, ab},
		{"in.json", "\ufeff\n{\n\"id\":1\n}\n{}\n", FormatAuto, []string{"{\n\"id\":1\n}", "{}"}},
		{"in.csv", comma, FormatAuto, ab},
		{"in.CSV", "\ufeff" + comma, FormatAuto, ab},
		{"in", comma, FormatCSV, ab},
		{"in.tsv", tab, FormatAuto, []string{`{"id":"a","x":"1"}`, `{"id":"b","x":","}`}},
		{"empty", "", FormatAuto, nil},
		{"empty.csv", "", FormatAuto, nil},
		{"empty.json", "", FormatJSON, nil},
		{"short", "\x1f", FormatAuto, []string{"\x1f"}},
		{"parenthesis", "(", FormatAuto, []string{"("}},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, texts(t, open(t, strings.NewReader(test.stream), test.name, test.format)))
			if len(test.stream) < 2 {
				return
			}
			for suffix, compressed := range map[string]string{".gz": gzipped(test.stream), ".zst": zstded(test.stream)} {
				require.True(t, IsCompressed([]byte(compressed)))
				got := texts(t, open(t, iotest.OneByteReader(strings.NewReader(compressed)), test.name+suffix, test.format))
				require.Equal(t, test.want, got, suffix)
			}
		})
	}
	_, err := Open(strings.NewReader(""), "in", "xml", testLimit, nil)
	require.EqualError(t, err, `unknown format "xml": want one of [auto ndjson json csv tsv]`)
}

// skippable is a zstd frame without data.
func skippable(kind byte, text string) string {
	return string([]byte{0x50 | kind, 0x2a, 0x4d, 0x18, byte(len(text)), 0, 0, 0}) + text
}

func TestConcatenatedMembers(t *testing.T) {
	zeros := string(make([]byte, 1000))
	for _, stream := range []string{
		gzipped("a\nb") + gzipped("c\nd"),
		gzipped("a\nb") + gzipped("") + gzipped("c\nd") + "\x00",
		gzipped("a\nb") + gzipped("c\nd") + zeros,
		zstded("a\nb") + zstded("c\nd"),
		skippable(0, "") + zstded("a\nb") + zstded("c\nd"),
		skippable(15, "text") + skippable(3, zeros[:200]) + zstded("a\nb") + skippable(1, "x") + zstded("c\nd") + skippable(2, "y"),
	} {
		require.True(t, IsCompressed([]byte(stream)))
		for _, in := range []io.Reader{strings.NewReader(stream), iotest.OneByteReader(strings.NewReader(stream))} {
			require.Equal(t, []string{"a", "bc", "d"}, texts(t, open(t, in, "in", FormatAuto)))
		}
	}
	for _, text := range []string{"P", "P*M", "\x60*M\x18", "P*M\x17"} {
		require.False(t, IsCompressed([]byte(text)))
		require.Equal(t, []string{text}, texts(t, open(t, strings.NewReader(text), "in", FormatAuto)))
	}
	require.EqualError(t, readToEnd(gzipped("a\n")+"\x00x"), "gzip: other data follows the zeros behind a member")
	require.EqualError(t, readToEnd(gzipped("a\n")+"text without a header"), "gzip: invalid header")
}

func TestCutAndDamagedCompression(t *testing.T) {
	const text = "first\nsecond\nthird\n"
	for _, whole := range []string{gzipped(text), zstded(text)} {
		for cut := 4; cut < len(whole); cut++ {
			require.Error(t, readToEnd(whole[:cut]), "cut to %d of %d bytes", cut, len(whole))
		}
		damaged := []byte(whole)
		damaged[len(damaged)-5] ^= 1 // in a checksum, or in data covered by it
		require.Error(t, readToEnd(string(damaged)))
	}
	require.ErrorContains(t, readToEnd("\x28\xb5\x2f\xfd\x00\xff"), "a window of more than the limit of 134217728 bytes; compress with --long=27 or less", "it has terabytes")
}

// TestFailuresAreNoEnd: an error that wraps io.EOF is not the end of a stream, and the first error
// is repeated, also if the stream ends behind it.
func TestFailuresAreNoEnd(t *testing.T) {
	failure := fmt.Errorf("the connection broke: %w", io.EOF)
	for _, test := range []struct {
		name, stream string
		format       Format
		records      int
	}{
		{"nothing", "", FormatAuto, 0},
		{"lines", "a\nb\n", FormatNDJSON, 2},
		{"part of a line", "a\nb", FormatNDJSON, 1},
		{"array", `[1, 2`, FormatJSON, 1},
		{"objects", `{"a":1}{"a":2}`, FormatJSON, 2},
		{"part of an object", `{"a":1}{"a":2`, FormatJSON, 1},
		{"element", `[1, 2,`, FormatJSON, 2},
		{"before an array", ` `, FormatJSON, 0},
		{"behind an array", `[1]`, FormatJSON, 1},
		{"table", "id\n1\n2\n", FormatCSV, 2},
		{"row", "id\n1\n2", FormatCSV, 1},
		{"before a table", "", FormatTSV, 0},
		{"gzip", gzipped("a\n"), FormatAuto, 1},
		{"zstd", zstded("a\n"), FormatAuto, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := Open(io.MultiReader(strings.NewReader(test.stream), &failOnce{failure}), "in", test.format, testLimit, nil)
			for range test.records {
				require.NoError(t, err)
				_, err = s.Next()
			}
			require.NoError(t, err)
			require.False(t, s.AtEnd())
			for range 2 {
				_, err = s.Next()
				require.ErrorContains(t, err, "the connection broke")
				require.False(t, eof.Is(err))
			}
			_ = s.Close() // repeats the error
		})
	}
}

// failOnce fails once and then ends.
type failOnce struct{ failure error }

func (f *failOnce) Read([]byte) (int, error) {
	err := f.failure
	f.failure = io.EOF
	return 0, err
}

func readToEnd(stream string) error {
	s, err := Open(strings.NewReader(stream), "in", FormatAuto, testLimit, nil)
	if err != nil {
		return err
	}
	for {
		if _, err := s.Next(); err != nil {
			closeErr := s.Close()
			if errors.Is(err, io.EOF) {
				return closeErr
			}
			return err
		}
	}
}

// TestOpenReadsNoMoreThanNeeded: further bytes of a pipe may be delayed.
func TestOpenReadsNoMoreThanNeeded(t *testing.T) {
	in, out := io.Pipe()
	go func() {
		_, _ = out.Write([]byte("{}\n"))
	}()
	s := open(t, in, "standard input", FormatAuto)
	record, err := s.Next()
	require.NoError(t, err)
	require.Equal(t, "{}", string(record.Text))
}

func TestEndlessRecordsTakeBoundedMemory(t *testing.T) {
	for _, test := range []struct {
		start  string
		format Format
	}{{"id\n\"", FormatCSV}, {`["`, FormatJSON}} {
		endless := io.MultiReader(strings.NewReader(test.start), io.LimitReader(spaces{}, 1<<30))
		s := open(t, endless, "in", test.format)
		_, err := s.Next()
		require.ErrorIs(t, err, errEndless, test.format)
	}
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// FuzzOpen: for any stream, records end at their offsets, in order, and valid records
// conform to the format.
func FuzzOpen(f *testing.F) {
	for _, seed := range []string{
		`{"id":"a"}` + "\n", `[{"id":"a"},{"id":"b"}]`, "id,x\na,1\n", gzipped("a\nb\n"), zstded(`["a"]`), "\ufeff[", "id\n\"", "{\n}{}", "\xff\xfe{\x00}\x00",
	} {
		for _, name := range []string{"in", "in.csv", "in.tsv"} {
			f.Add([]byte(seed), name)
		}
	}
	f.Fuzz(func(t *testing.T, stream []byte, name string) {
		const limit = 1 << 10
		s, err := Open(bytes.NewReader(stream), name, FormatAuto, limit, nil)
		if err != nil {
			return
		}
		defer func() { _ = s.Close() }() // repeats the read error
		end := int64(0)
		for {
			record, err := s.Next()
			if err != nil {
				return
			}
			require.Greater(t, record.End, end)
			end = record.End
			require.Positive(t, record.Number)
			require.LessOrEqual(t, len(record.Text), limit)
			require.Equal(t, record.Problem != nil, record.Text == nil)
		}
	})
}

// Streams of bzip2 are decompressed, also several in a row; text that begins like one is text.
func TestBzip2(t *testing.T) {
	compressed, err := os.ReadFile("testdata/lines.bz2")
	require.NoError(t, err)
	for _, test := range []struct{ name, stream, want string }{
		{"one", string(compressed), "a\nb"},
		{"two", string(compressed) + string(compressed), "a\nb\na\nb"},
		{"text", "BZh9 is not compressed\nb", "BZh9 is not compressed\nb"},
		{"short text", "BZ", "BZ"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := Open(strings.NewReader(test.stream), "lines.bz2", FormatAuto, 1000, &Options{})
			require.NoError(t, err)
			var got []string
			for {
				record, err := s.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
				got = append(got, string(record.Text))
			}
			require.Equal(t, test.want, strings.Join(got, "\n"))
			require.NoError(t, s.Close())
		})
	}
	require.True(t, IsCompressed(compressed))
	require.False(t, IsCompressed([]byte("BZ")))
	s, err := Open(bytes.NewReader(compressed[:len(compressed)-3]), "x", FormatNDJSON, 1000, &Options{})
	require.NoError(t, err)
	for err == nil {
		_, err = s.Next()
	}
	require.NotErrorIs(t, err, io.EOF, "a truncated stream is an error")
}
