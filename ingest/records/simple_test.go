package records

import (
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/jobs"
)

func TestSimpleID(t *testing.T) {
	template, err := ParseTemplate("{id}/{x}")
	require.NoError(t, err)
	for _, test := range []struct {
		text, want string
		options    Options
	}{
		{`{"id":"a"}`, "a", Options{}},
		{" {\t\"id\" : \"é\" , \"x\":{\"id\":\"no\"}}", "é", Options{}},
		{`{"id":42,"under_score":"a\nb _c"}`, "42", Options{}},
		{`{"_id":"a","x":1}`, "a", Options{IDField: "_id"}},
		{`{"id":"a"`, "a", Options{}},           // an error of Parse
		{`{"id":"a","id":"b"}`, "a", Options{}}, // and this
		{`{"x":1,"id":"a"}`, "", Options{}},
		{`{"id":"a\u0062"}`, "", Options{}},
		{`{"id":4.2}`, "", Options{}},
		{`{"id":-4}`, "", Options{}},
		{`{"id":""}`, "", Options{}},
		{`{"id":`, "", Options{}},
		{`{"id":4`, "", Options{}},
		{`{"identity":"a"}`, "", Options{}},
		{`{"id":"a","_expires":null}`, "", Options{}},
		{`{"id":"a","\u005fdelete":true}`, "", Options{}},
		{`{"id":"a","_expires":null}`, "", Options{PlainFields: true}},
		{`{"id":"a","x":"b"}`, "", Options{Template: template}},
		{`["id"]`, "", Options{}},
		{``, "", Options{}},
	} {
		require.Equal(t, test.want, string(NewParser(&test.options).SimpleID([]byte(test.text))), test.text)
	}
}

func BenchmarkSimpleID(b *testing.B) {
	text := append([]byte(`{"id":"a","posting":`), jobs.New(1).Next()...)
	text = append(text, '}')
	parser := NewParser(nil)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if parser.SimpleID(text) == nil {
			b.Fatal("no id")
		}
	}
}
