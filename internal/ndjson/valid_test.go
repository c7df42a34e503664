package ndjson

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

var validCases = []string{
	`{"id":"a","n":[1,-0.5e+7,0,true,false,null,{}],"x":"\u00e4\n\\ \"long text of more than eight bytes\""}`,
	``, ` `, `1 `, ` [ ] `, `{}x`, `"`, `"\`, `"\u12`, `"\u12g4"`, `"\x"`, "\"a\x1fb\"", "\"12345678\x00\"", `01`, `-`, `1.`, `1e`, `1e+`, `.5`,
	`tru`, `truex`, `nul`, `[1,]`, `[,1]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{1:2}`, `[1 2]`, "\"\x80\xff\"", `"\"`, `"12345678`,
	strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth),
	strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
	strings.Repeat(`{"a":`, maxDepth) + "1" + strings.Repeat("}", maxDepth),
}

// FuzzValid: the result is that of encoding/json.
func FuzzValid(f *testing.F) {
	for _, text := range validCases {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		require.Equal(t, json.Valid(b), Valid(b))
	})
}

// Random changes of a document, and its beginnings, have the result of encoding/json.
func TestValidOfChangedDocuments(t *testing.T) {
	r := testseed.Rand(t)
	document := []byte(validCases[0])
	for n := range document {
		require.Equal(t, json.Valid(document[:n]), Valid(document[:n]), "%q", document[:n])
	}
	const characters = "\"\\{}[]:,0123456789-+.eEtrufalsn \t\n\x00\x1f\x7f\x80\xff"
	accepted := 0
	for range 20000 {
		changed := append([]byte(nil), document...)
		for range 1 + r.IntN(2) {
			changed[r.IntN(len(changed))] = characters[r.IntN(len(characters))]
		}
		want := json.Valid(changed)
		require.Equal(t, want, Valid(changed), "%q", changed)
		if want {
			accepted++
		}
	}
	require.Positive(t, accepted)
}

func BenchmarkValid(b *testing.B) {
	document := []byte(`{"id":"a","text":"` + strings.Repeat("words of a text, ", 40) + `","numbers":[1,2.5,300]}`)
	for name, valid := range map[string]func([]byte) bool{"this": Valid, "encoding/json": json.Valid} {
		b.Run("by="+name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(document)))
			for b.Loop() {
				if !valid(document) {
					b.Fatal("not valid")
				}
			}
		})
	}
}
