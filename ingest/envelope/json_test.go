package envelope

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzFields compares fieldsOf with encoding/json.
func FuzzFields(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(` { "a" : 1 , "b\"\\" : [ { "c" : "}" } , "\\" ] , "d":-1.5e3,"e":null } `))
	f.Add([]byte(`{"":"","é":"\u00e9","\ud800":true,"a":1,"a":2}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		value, err := new(Decoder).parse("value", text)
		if err != nil || !isObject(value) {
			return
		}
		want := map[string]json.RawMessage{}
		require.NoError(t, json.Unmarshal(text, &want))
		got, err := objectOf("value", value)
		require.NoError(t, err)
		require.Len(t, got, len(want))
		for name, value := range want {
			require.Equal(t, string(bytes.Trim(value, blanks)), string(got[name]), "%q", name)
		}
	})
}

// FuzzID checks that ids of one column and of several are the values, unambiguously.
func FuzzID(f *testing.F) {
	f.Add("a", "b", int64(-1))
	f.Add(`"]`, "\u2028<", int64(1<<62))
	f.Fuzz(func(t *testing.T, a, b string, n int64) {
		quote := func(s string) []byte {
			text, err := json.Marshal(s)
			require.NoError(t, err)
			return text
		}
		number, err := json.Marshal(n)
		require.NoError(t, err)
		id, err := idOf([]field{{"a", quote(a)}, {"n", number}, {"b", quote(b)}})
		require.NoError(t, err)
		var values []any
		require.NoError(t, json.Unmarshal(id, &values))
		again, err := json.Marshal([]any{a, n, b})
		require.NoError(t, err)
		var want []any
		require.NoError(t, json.Unmarshal(again, &want))
		require.Equal(t, want, values)
	})
}

func BenchmarkDebezium(b *testing.B) {
	row := `{"id":17,"title":"` + string(bytes.Repeat([]byte("abcdefgh "), 90)) + `"}`
	value := []byte(`{"before":null,"after":` + row + `,"source":{"version":"3.0","connector":"postgresql","name":"shop","ts_ms":1,"snapshot":"false","db":"shop","table":"jobs","lsn":1},"op":"u","ts_ms":1}`)
	d := Decoder{Format: Debezium}
	b.SetBytes(int64(len(value)))
	b.ReportAllocs()
	for b.Loop() {
		if r := d.Append(nil, []byte(`{"id":17}`), value); r[0].Problem != nil {
			b.Fatal(r[0].Problem)
		}
	}
}

func BenchmarkJSON(b *testing.B) {
	value := []byte(`{"id":17,"title":"` + string(bytes.Repeat([]byte("abcdefgh "), 96)) + `"}`)
	d := Decoder{Format: JSON}
	b.SetBytes(int64(len(value)))
	b.ReportAllocs()
	for b.Loop() {
		if r := d.Append(nil, []byte(`17`), value); r[0].Problem != nil {
			b.Fatal(r[0].Problem)
		}
	}
}
