package records

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"docstore/internal/eof"
)

func TestArray(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"none", " [ ] \n", nil},
		{"elements are as written", "[{\"a\" : 1},\n {\"b\":[\n2]} ]", []string{`{"a" : 1}`, "{\"b\":[\n2]}"}},
		{"any elements", `["a",1,null]`, []string{`"a"`, "1", "null"}},
		{"too long", `["` + strings.Repeat("x", testLimit) + `",1]`, []string{"!the record is longer than the limit of 1048576 bytes", "1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, texts(t, open(t, strings.NewReader(test.text), "in", FormatAuto)))
			require.Equal(t, test.want, texts(t, open(t, iotest.HalfReader(strings.NewReader(test.text)), "in", FormatJSON)))
		})
	}
}

func TestArrayEndsAndNumbers(t *testing.T) {
	const text = `[{"id":1}, {"id":2}] `
	s := open(t, strings.NewReader(text), "in", FormatAuto)
	first, err := s.Next()
	require.NoError(t, err)
	require.Equal(t, []int64{1, int64(strings.Index(text, ","))}, []int64{first.Number, first.End})
	require.False(t, s.AtEnd())
	second, err := s.Next()
	require.NoError(t, err)
	require.Equal(t, []int64{2, int64(strings.Index(text, "]"))}, []int64{second.Number, second.End})
	require.True(t, s.AtEnd())
}

func TestObjects(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"pretty", "{\n  \"id\": 1,\n  \"a\": [\n    {}\n  ]\n}\n\n{\n  \"id\": 2\n}", []string{"{\n  \"id\": 1,\n  \"a\": [\n    {}\n  ]\n}", "{\n  \"id\": 2\n}"}},
		{"a string ends a line", "{\n\"id\":\"1\"\n}", []string{"{\n\"id\":\"1\"\n}"}},
		{"without white space", `{"a":"}{"}{"b":"\\"}{"c":"\""}`, []string{`{"a":"}{"}`, `{"b":"\\"}`, `{"c":"\""}`}},
		{"the parser reports the rest", "{\nx}{}", []string{"{\nx}", "{}"}},
		{"too long", `{}{"` + strings.Repeat("x", testLimit) + `":1}` + "\n{}", []string{"{}", "!the record is longer than the limit of 1048576 bytes", "{}"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, texts(t, open(t, strings.NewReader(test.text), "in", FormatAuto)))
			require.Equal(t, test.want, texts(t, open(t, iotest.OneByteReader(strings.NewReader(test.text)), "in", FormatJSON)))
		})
	}
}

// TestPlacesOfObjects: a record has the number of its object, the line in which that begins, and
// the offset behind it.
func TestPlacesOfObjects(t *testing.T) {
	const text = "\n{\n\"id\":1} {}\n{\"id\":2}\n"
	s := open(t, strings.NewReader(text), "in", FormatAuto)
	var got []int64
	for _, record := range readAll(t, s) {
		got = append(got, record.Number, record.Line, record.End)
	}
	require.Equal(t, []int64{1, 2, 10, 2, 3, 13, 3, 4, 22}, got)
	require.True(t, s.AtEnd())
}

// TestWaitingForObjects: an object of a pipe is not held back until the next one arrives.
func TestWaitingForObjects(t *testing.T) {
	in, out := io.Pipe()
	go func() {
		_, _ = out.Write([]byte("{\n}{\"a\":{}}\n{\"b\":{}"))
	}()
	s := open(t, in, "standard input", FormatAuto)
	for i := range 2 {
		_, err := s.Next()
		require.NoError(t, err)
		require.Equal(t, i == 0, s.Waiting())
	}
}

// TestSequencesAreDetected: a line that is not JSON is one of lines.
func TestSequencesAreDetected(t *testing.T) {
	for _, test := range []struct {
		head string
		want Format
	}{
		{"{", FormatNDJSON}, {"{}", FormatNDJSON}, {"{}\n{}", FormatNDJSON}, {`{"a":"{}"}` + " \r\n", FormatNDJSON},
		{"{} x\n", FormatNDJSON}, {"{\"a\n", FormatNDJSON}, {"{x\n", FormatNDJSON}, {"{\"a\":\n{}\n{}", FormatNDJSON},
		{"{\n", FormatJSON}, {"\n\n{\n}", FormatJSON}, {"{} {", FormatJSON}, {"{}{}", FormatJSON}, {"{\"a\":1,\r\n\"b\"", FormatJSON}, {"[", FormatJSON},
	} {
		require.Equal(t, test.want, Detect("in", []byte(test.head)), "%q", test.head)
	}
}

func TestBadValues(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{`[`, "line 1: behind document 0: the stream ends within the array"},
		{"[\n1", "line 2: the stream ends within document 1, which begins here"},
		{"[1,\n", "line 2: behind document 1: the stream ends within the array"},
		{`[{"a":`, "line 1: the stream ends within document 1, which begins here"},
		{"[1\n2]", "line 2: behind document 1: '2' where a comma or ] should be"},
		{`[1,]`, "line 1: behind document 1: ']' where a value should be"},
		{`[,1]`, "line 1: behind document 0: ',' where a value should be"},
		{`[1}`, "line 1: behind document 1: '}' where a comma or ] should be"},
		{`[{"a":[}]`, "line 1: behind document 0: a bracket closes one of the other kind"},
		{"[{\n\"a\n\"}]", "line 2: behind document 0: a string does not end in its line"},
		{`[1] [2]`, "line 1: behind document 1: unexpected data after the array, at byte 4"},
		{"{}\n{}\n]", "line 3: behind document 2: ']' where { should be"},
		{"{\"a\":1},\n{}", "line 1: behind document 1: ',' where { should be"},
		{"{}\n{\n\n", "line 2: the stream ends within document 2, which begins here"},
		{"{}{\n\"a\":\"b\n\"}", "line 2: behind document 1: a string does not end in its line"},
		{`x`, "line 1: behind document 0: 'x' where { should be"},
		{"[" + strings.Repeat("[", maxDepth+1), "line 1: behind document 0: nested too deep"},
	} {
		t.Run(test.text[:min(len(test.text), 20)], func(t *testing.T) {
			for _, in := range []io.Reader{strings.NewReader(test.text), iotest.OneByteReader(strings.NewReader(test.text))} {
				s := open(t, in, "in", FormatJSON)
				for {
					if _, err := s.Next(); err != nil {
						require.EqualError(t, err, test.want)
						break
					}
				}
			}
		})
	}
}

// FuzzValues: values are found as encoding/json finds them, in pieces of any size.
func FuzzValues(f *testing.F) {
	for _, seed := range []string{`[{"a":"\"]"}, 1,true , [ ]]`, "{\n}{\"a\":{}}\n", `{"a":"\\"}{`, `["a" "b"]`, `[1"a"]`, `[1{}]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		want, wantErr := decodeAll(stream)
		for _, in := range []io.Reader{bytes.NewReader(stream), iotest.OneByteReader(bytes.NewReader(stream))} {
			values := newValues(buffered(in), 1<<20)
			for i := 0; ; i++ {
				record, err := values.Next()
				if err != nil {
					require.False(t, wantErr == nil && !eof.Is(err), "%v", err)
					require.False(t, wantErr == nil && i < len(want), "%d values", i)
					break
				}
				if !json.Valid(record.Text) {
					require.Error(t, wantErr)
					break
				}
				if i < len(want) {
					require.Equal(t, want[i], string(record.Text))
				}
				require.Equal(t, string(record.Text), string(stream[record.End-int64(len(record.Text)):record.End]))
			}
		}
	})
}

// decodeAll returns the values of an array or of objects, and an error if they are invalid.
func decodeAll(stream []byte) (all []string, err error) {
	decoder := json.NewDecoder(bytes.NewReader(stream))
	if isArray(stream) {
		if !json.Valid(stream) {
			return nil, errors.New("no array")
		}
		_, _ = decoder.Token() // it is valid
	}
	for decoder.More() {
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return all, err
		}
		if value[0] != '{' && !isArray(stream) {
			return all, errors.New("no object")
		}
		all = append(all, string(value))
	}
	if !isArray(stream) && len(bytes.TrimLeft(stream[decoder.InputOffset():], " \t\r\n")) > 0 {
		return all, errors.New("more data")
	}
	return all, nil
}

func isArray(stream []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(stream, " \t\r\n"), []byte("["))
}
