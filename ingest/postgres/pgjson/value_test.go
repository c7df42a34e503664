package pgjson

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestAppend(t *testing.T) {
	for _, c := range []struct {
		oid        uint32
		text, want string
	}{
		{16, "t", `true`}, {16, "f", `false`},
		{20, "-9223372036854775808", `-9223372036854775808`},
		{23, "0", `0`},
		{1700, "12.50", `12.50`}, {1700, "NaN", `"NaN"`}, {1700, "-Infinity", `"-Infinity"`},
		{701, "1e-07", `1e-07`}, {701, "1.5e+300", `1.5e+300`}, {701, "-0", `-0`}, {700, "Infinity", `"Infinity"`},
		{114, `{"a": 1}`, `{"a": 1}`}, {114, "{\n \"a\\n\": 1\r\n}", `{"a\n":1}`}, {3802, `[1, null]`, `[1, null]`},
		{1184, "2026-11-23 08:45:00+00", `"2026-11-23T08:45:00Z"`},
		{1184, "2026-11-23 08:45:00.123456+00", `"2026-11-23T08:45:00.123456Z"`},
		{1184, "infinity", `"infinity"`}, {1184, "0044-03-15 00:00:00+00 BC", `"0044-03-15 00:00:00+00 BC"`},
		{1184, "12026-11-23 08:45:00+00", `"12026-11-23 08:45:00+00"`},
		{1114, "2026-11-23 08:45:00.5", `"2026-11-23T08:45:00.5"`}, {1114, "-infinity", `"-infinity"`},
		{1082, "2026-11-23", `"2026-11-23"`},
		{17, `\x00ff61`, `"AP9h"`}, {17, `\x`, `""`},
		{25, "a\"\\\n\r\t\x01\x7fä€𐍈", `"a\"\\\n\r\t\u0001` + "\x7f" + `ä€𐍈"`}, {25, "", `""`},
		{2950, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", `"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"`},
		{1007, "{}", `[]`}, {1007, "{1,NULL,-3}", `[1,null,-3]`}, {1007, "{{1,2},{3,4}}", `[[1,2],[3,4]]`},
		{1007, "[2:3]={1,2}", `[1,2]`}, {1007, "[1:1][-2:-1]={{1,2}}", `[[1,2]]`},
		{1009, `{a,"b c","d\"e\\f",NULL,"NULL","","{","a,b"}`, `["a","b c","d\"e\\f",null,"NULL","","{","a,b"]`},
		{1000, "{t,f}", `[true,false]`},
		{1001, `{"\\x00","\\x"}`, `["AA==",""]`},
		{1185, `{"2026-11-23 08:45:00+00"}`, `["2026-11-23T08:45:00Z"]`},
		{3807, `{"{\"a\": [1, 2]}",null}`, `[{"a": [1, 2]},null]`},
	} {
		got, err := Builtin(c.oid).Append([]byte("x"), []byte(c.text))
		require.NoError(t, err, c.text)
		require.Equal(t, "x"+c.want, string(got))
		require.True(t, json.Valid(got[1:]))
	}
	boxes := Array(String(), ';')
	got, err := boxes.Append(nil, []byte("{(1,1),(0,0);(2,2),(1,1)}"))
	require.NoError(t, err)
	require.Equal(t, `["(1,1),(0,0)","(2,2),(1,1)"]`, string(got))
}

// An invalid value becomes a string, and is reported.
func TestAppendInvalid(t *testing.T) {
	for _, c := range []struct {
		oid  uint32
		text string
	}{
		{16, "true"}, {16, ""},
		{20, ""}, {20, "-"}, {20, "1a"}, {20, "01"}, {1700, "1."}, {1700, ".5"}, {701, "1e"}, {701, "+1"},
		{114, "{"}, {114, ""},
		{17, "abc"}, {17, `\xabc`}, {17, `\xgg`},
		{25, "\xff"},
		{1007, ""}, {1007, "{"}, {1007, "{1"}, {1007, "{1,}"}, {1007, "{,}"}, {1007, "{1}2"}, {1007, "{a}"}, {1007, "[1:2]{1}"}, {1007, "{1{2}}"},
		{1007, "{{{{{{{1}}}}}}}"}, {1009, `{"a}`}, {1009, `{"a\`}, {1009, `{a\b}`},
	} {
		got, err := Builtin(c.oid).Append(nil, []byte(c.text))
		require.Error(t, err, c.text)
		require.True(t, json.Valid(got), "%s", got)
		require.Equal(t, byte('"'), got[0])
	}
}

func TestAppendPlain(t *testing.T) {
	for _, c := range []struct {
		oid        uint32
		text, want string
	}{
		{20, "17", "17"},
		{25, `a"b`, `a"b`},
		{17, `\x00ff`, "\x00\xff"},
		{1184, "2026-11-23 08:45:00+00", "2026-11-23T08:45:00Z"},
		{1114, "infinity", "infinity"},
	} {
		got, err := Builtin(c.oid).AppendPlain([]byte("x"), []byte(c.text))
		require.NoError(t, err)
		require.Equal(t, "x"+c.want, string(got))
	}
	_, err := byteaType.AppendPlain(nil, []byte("17"))
	require.Error(t, err)
}

// FuzzAppend: any text becomes valid JSON. A text is a string with the same content unless it
// is reported.
func FuzzAppend(f *testing.F) {
	for _, text := range []string{"t", "1.5e7", `{"a":1}`, "2026-11-23 08:45:00.5+00", `\x00`, `{a,"b",{NULL}}`, "[1:2]={1,2}", "\xff"} {
		for oid := range builtin {
			f.Add(oid, []byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, oid uint32, text []byte) {
		typ := Builtin(oid)
		if typ == nil {
			return
		}
		got, err := typ.Append(nil, text)
		require.True(t, json.Valid(got), "%q -> %q", text, got)
		require.True(t, utf8.Valid(got), "%q -> %q", text, got)
		if typ == stringType && err == nil {
			var back string
			require.NoError(t, json.Unmarshal(got, &back))
			require.Equal(t, string(text), back)
		}
		_, _ = typ.AppendPlain(nil, text)
	})
}
