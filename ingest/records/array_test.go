package records

import (
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
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

func TestBadArrays(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{`[`, "behind element 0: the stream ends within the array"},
		{`[1`, "behind element 1: the stream ends within the array"},
		{`[1,`, "element 2: the stream ends within the array"},
		{`[{"a":`, "element 1: the stream ends within the array"},
		{`[1 2]`, "element 2: expected comma after array element"},
		{`[1,]`, "element 2: invalid character ']' looking for beginning of value"},
		{`[x]`, "element 1: invalid character 'x' looking for beginning of value"},
		{`[1}`, "behind element 1: invalid character '}' after array element"},
		{`[1] [2]`, "unexpected data after the array, at byte 5"},
		{`{"a":1}`, "a JSON array must begin with [, not with {"},
		{`x`, "invalid character 'x' looking for beginning of value"},
	} {
		t.Run(test.text, func(t *testing.T) {
			s := open(t, strings.NewReader(test.text), "in", FormatJSON)
			for {
				if _, err := s.Next(); err != nil {
					require.EqualError(t, err, test.want)
					return
				}
			}
		})
	}
}
