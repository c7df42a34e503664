package records

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

const testLimit = 1 << 20

func readAll(t *testing.T, r Reader) (all []Record) {
	t.Helper()
	for {
		line, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		line.Text = append([]byte(nil), line.Text...)
		all = append(all, line)
	}
}

func TestLines(t *testing.T) {
	for _, test := range []struct {
		name, input string
		want        []Record
	}{
		{"nothing", "", nil},
		{"blank lines", "\n \t\r\n\n", nil},
		{"one", "a\n", []Record{{Number: 1, End: 2, Text: []byte("a"), Newline: true}}},
		{"no newline at the end", "a\nb", []Record{{Number: 1, End: 2, Text: []byte("a"), Newline: true}, {Number: 2, End: 3, Text: []byte("b")}}},
		{"blank lines count", "\na\n\n\nb\n", []Record{{Number: 2, End: 3, Text: []byte("a"), Newline: true}, {Number: 5, End: 7, Text: []byte("b"), Newline: true}}},
		{"byte order mark", "\ufeffa\nb\n", []Record{{Number: 1, End: 5, Text: []byte("a"), Newline: true}, {Number: 2, End: 7, Text: []byte("b"), Newline: true}}},
		{"carriage return", "a\r\nb\r\n", []Record{{Number: 1, End: 3, Text: []byte("a\r"), Newline: true}, {Number: 2, End: 6, Text: []byte("b\r"), Newline: true}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, readAll(t, NewLines(strings.NewReader(test.input), testLimit, 0, 0)))
			require.Equal(t, test.want, readAll(t, NewLines(iotest.OneByteReader(strings.NewReader(test.input)), testLimit, 0, 0)))
		})
	}
}

func TestLinesFromOffset(t *testing.T) {
	const input = "first\nsecond\nthird\n"
	all := readAll(t, NewLines(strings.NewReader(input), testLimit, 0, 0))
	rest := readAll(t, NewLines(strings.NewReader(input[all[0].End:]), testLimit, all[0].End, all[0].Number))
	require.Equal(t, all[1:], rest)
}

func TestLineLimit(t *testing.T) {
	for _, size := range []int{testLimit - 1, testLimit, testLimit + 1, testLimit + 2, readBufferBytes - 1, readBufferBytes, readBufferBytes + 1, 3 * testLimit} {
		for _, end := range []string{"\nnext\n", ""} {
			input := strings.Repeat("x", size) + end
			lines := readAll(t, NewLines(strings.NewReader(input), testLimit, 0, 0))
			require.Equal(t, size > testLimit, lines[0].Problem != nil, "%d bytes", size)
			if size <= testLimit {
				require.Len(t, lines[0].Text, size)
			}
			require.Equal(t, int64(size+min(1, len(end))), lines[0].End)
			require.Equal(t, end != "", lines[0].Newline)
			if end != "" {
				require.Equal(t, Record{Number: 2, End: int64(len(input)), Text: []byte("next"), Newline: true}, lines[1])
			}
		}
	}
}

func TestEndlessLineTakesLittleMemory(t *testing.T) {
	r := NewLines(io.LimitReader(zeros{}, 1<<30), testLimit, 0, 0)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	line, err := r.Next()
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.EqualError(t, line.Problem, "the record is longer than the limit of 1048576 bytes")
	require.Equal(t, int64(1<<30), line.End)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16*testLimit))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestReadError(t *testing.T) {
	broken := errors.New("broken disk")
	r := NewLines(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)), testLimit, 0, 0)
	line, err := r.Next()
	require.NoError(t, err)
	require.Equal(t, "a", string(line.Text))
	_, err = r.Next()
	require.ErrorIs(t, err, broken)
}

func TestWaitingAndAtEnd(t *testing.T) {
	in, out := io.Pipe()
	r := NewLines(in, testLimit, 0, 0)
	require.False(t, r.Waiting())
	go func() {
		out.Write([]byte("a\nb\nhalf"))
		out.Write([]byte(" a line\n"))
		out.Close()
	}()
	for _, want := range []struct {
		text    string
		waiting bool
	}{{"a", true}, {"b", false}, {"half a line", false}} {
		line, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, want.text, string(line.Text))
		require.Equal(t, want.waiting, r.Waiting())
	}
	require.True(t, r.AtEnd())
}

// TestRandomLines splits random text at random places and compares with strings.Split.
func TestRandomLines(t *testing.T) {
	random := testseed.Rand(t)
	for range 200 {
		var text strings.Builder
		for range random.IntN(50) {
			text.WriteString(strings.Repeat("x", random.IntN(20)))
			text.WriteByte('\n')
		}
		var want []string
		for _, line := range strings.Split(text.String(), "\n") {
			if line != "" {
				want = append(want, line)
			}
		}
		var got []string
		for _, line := range readAll(t, NewLines(iotest.HalfReader(strings.NewReader(text.String())), testLimit, 0, 0)) {
			require.Equal(t, string(line.Text), text.String()[line.End-1-int64(len(line.Text)):line.End-1])
			got = append(got, string(line.Text))
		}
		require.Equal(t, want, got)
	}
}
