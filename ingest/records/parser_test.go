package records

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/jobs"
)

func TestParse(t *testing.T) {
	summer := time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name, line string
		options    Options
		want       Entry
	}{
		{"string id", `{"id":"a"}`, Options{}, Entry{ID: []byte("a")}},
		{"blanks everywhere", " \t{ \"a\" : [ 1 , { } ] , \"id\" : \"a\" } \r", Options{}, Entry{ID: []byte("a")}},
		{"integer id", `{"id":123}`, Options{}, Entry{ID: []byte("123")}},
		{"negative id", `{"id":-5}`, Options{}, Entry{ID: []byte("-5")}},
		{"zero", `{"id":0}`, Options{}, Entry{ID: []byte("0")}},
		{"integer beyond 64 bits", `{"id":123456789012345678901234567890}`, Options{}, Entry{ID: []byte("123456789012345678901234567890")}},
		{"escaped id", `{"id":"a\u00e9\"\\\/\b\f\n\r\t\ud83d\ude00"}`, Options{}, Entry{ID: []byte("aé\"\\/\b\f\n\r\t😀")}},
		{"escaped name", `{"\u0069d":"a"}`, Options{}, Entry{ID: []byte("a")}},
		{"name that is not Unicode", `{"\ud800":1,"id":"a"}`, Options{}, Entry{ID: []byte("a")}},
		{"only the object's own id counts", `{"x":{"id":"no"},"id":"yes","y":[{"id":"no"}]}`, Options{}, Entry{ID: []byte("yes")}},
		{"other field", `{"id":"no","key":"yes"}`, Options{IDField: "key"}, Entry{ID: []byte("yes")}},
		{"names are exact", `{"ID":"no","id":"yes"}`, Options{}, Entry{ID: []byte("yes")}},
		{"longest id", `{"id":"abc"}`, Options{MaxIDBytes: 3}, Entry{ID: []byte("abc")}},
		{"delete", `{"id":"a","_delete":true}`, Options{}, Entry{ID: []byte("a"), Delete: true}},
		{"no delete", `{"id":"a","_delete":false}`, Options{}, Entry{ID: []byte("a")}},
		{"null is no delete", `{"id":"a","_delete":null}`, Options{}, Entry{ID: []byte("a")}},
		{"expires", `{"id":"a","_expires":"2030-06-01T14:00:00+02:00"}`, Options{}, Entry{ID: []byte("a"), Expires: summer}},
		{"null never expires", `{"id":"a","_expires":null}`, Options{}, Entry{ID: []byte("a")}},
		{"plain fields", `{"id":"a","_delete":true,"_expires":7}`, Options{PlainFields: true}, Entry{ID: []byte("a")}},
		{"nested control fields", `{"id":"a","x":{"_delete":true}}`, Options{}, Entry{ID: []byte("a")}},
		{"document in base64", `{"_document_base64":"PGI+/w==","id":"a"}`, Options{}, Entry{ID: []byte("a"), Document: []byte("<b>\xff")}},
		{"document in a field", `{"id":"a","_document": {"id" : "b", "_delete":true} }`, Options{}, Entry{ID: []byte("a"), Document: []byte(`{"id" : "b", "_delete":true}`)}},
		{"deleted document", `{"id":"a","_document":1,"_delete":true}`, Options{}, Entry{ID: []byte("a"), Delete: true}},
		{"plain document field", `{"id":"a","_document":1}`, Options{PlainFields: true}, Entry{ID: []byte("a")}},
		{"escaped base64", `{"_document_base64":"PGI+\/w==","id":"a"}`, Options{}, Entry{ID: []byte("a"), Document: []byte("<b>\xff")}},
		{"empty document", `{"_document_base64":"","id":"a"}`, Options{}, Entry{ID: []byte("a"), Document: []byte{}}},
		{"id in base64", `{"_id_base64":"/wo=","_delete":true}`, Options{}, Entry{ID: []byte("\xff\n"), Delete: true}},
		{"plain base64 fields", `{"_document_base64":7,"_id_base64":"?","id":"a"}`, Options{PlainFields: true}, Entry{ID: []byte("a")}},
		{"other fields may repeat", `{"x":1,"x":2,"id":"a"}`, Options{}, Entry{ID: []byte("a")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := NewParser(&test.options).Parse([]byte(test.line))
			require.NoError(t, err)
			require.Equal(t, string(test.want.ID), string(got.ID))
			require.Equal(t, test.want.Delete, got.Delete)
			switch {
			case got.Delete:
				require.Nil(t, got.Document)
			case test.want.Document == nil:
				require.Equal(t, test.line, string(got.Document))
			default:
				require.Equal(t, string(test.want.Document), string(got.Document))
			}
			require.True(t, test.want.Expires.Equal(got.Expires), got.Expires)
		})
	}
}

func TestParseBadLines(t *testing.T) {
	for _, test := range []struct{ name, line, want string }{
		{"text", `hello`, `not JSON: byte 1 is 'h' where a value should be`},
		{"cut short", `{"id":"a"`, `not JSON: it ends where a comma or } should follow`},
		{"cut in a string", `{"id":"a`, `not JSON: it ends where the end of a string should follow`},
		{"two values", `{"id":"a"} {}`, `not JSON: byte 12 is '{' where the end of the record should be; several objects in a line need the format json`},
		{"trailing comma", `{"id":"a",}`, `not JSON: byte 11 is '}' where a field's name should be`},
		{"control character", "{\"id\":\"a\tb\"}", `not JSON: byte 9 is '\t' where an escaped character should be`},
		{"bad escape", `{"id":"\x"}`, `not JSON: byte 9 is 'x' where an escape should be`},
		{"bad number", `{"id":01}`, `not JSON: byte 8 is '1' where a comma or } should be`},
		{"too deep", strings.Repeat("[", maxDepth+1), `not JSON: nested too deep`},
		{"byte order mark", "\ufeff{}", `not JSON: byte 1 is 'ï' where a value should be`},
		{"array", `["id"]`, `not a JSON object`},
		{"string", ` "id" `, `not a JSON object`},
		{"broken array", `[1`, `not JSON: it ends where a comma or ] should follow`},
		{"two arrays", `[] []`, `not JSON: byte 4 is '[' where the end of the record should be`},
		{"no id", `{}`, `no id: there is no field "id"`},
		{"empty id", `{"id":""}`, `the id in "id" is empty`},
		{"long id", `{"id":"` + strings.Repeat("x", 1025) + `"}`, `the id in "id" has 1025 bytes; the limit is 1024`},
		{"fraction", `{"id":1.5}`, `the id 1.5 in "id" is a number other than a plain integer: write it as a string`},
		{"exponent", `{"id":1e3}`, `the id 1e3 in "id" is a number other than a plain integer: write it as a string`},
		{"negative zero", `{"id":-0}`, `the id -0 in "id" is a number other than a plain integer: write it as a string`},
		{"null", `{"id":null}`, `the id in "id" is neither a string nor an integer`},
		{"object", `{"id":{"id":"a"}}`, `the id in "id" is neither a string nor an integer`},
		{"half a surrogate pair", `{"id":"\ud800"}`, `the id in "id" is not valid Unicode`},
		{"half a pair and text", `{"id":"\ud800abcdef"}`, `the id in "id" is not valid Unicode`},
		{"two high halves", `{"id":"\ud800\ud800"}`, `the id in "id" is not valid Unicode`},
		{"not UTF-8", "{\"id\":\"\xff\"}", `the id in "id" is not valid Unicode`},
		{"two ids", `{"id":"a","id":"b"}`, `duplicate field "id"`},
		{"two ids, one escaped", `{"id":"a","\u0069d":"b"}`, `duplicate field "id"`},
		{"delete what", `{"id":"a","_delete":"yes"}`, `"_delete" is neither true nor false`},
		{"document in two forms", `{"id":"a","_document":{},"_document_base64":""}`, `"_document" and "_document_base64" contradict each other`},
		{"two objects", `{"id":"a"}{"id":"b"}`, "not JSON: byte 11 is '{' where the end of the record should be; several objects in a line need the format json"},
		{"document not in base64", `{"id":"a","_document_base64":"a"}`, `"_document_base64" is not a padded base64 string (RFC 4648)`},
		{"document no string", `{"id":"a","_document_base64":7}`, `"_document_base64" is not a padded base64 string (RFC 4648)`},
		{"two documents", `{"id":"a","_document_base64":"","_document_base64":""}`, `duplicate field "_document_base64"`},
		{"id not in base64", `{"id":"a","_id_base64":"\ud800"}`, `"_id_base64" is not a padded base64 string (RFC 4648)`},
		{"empty id in base64", `{"_id_base64":""}`, `the id in "_id_base64" is empty`},
		{"long id in base64", `{"_id_base64":"` + strings.Repeat("eHh4", 342) + `"}`, `the id in "_id_base64" has 1026 bytes; the limit is 1024`},
		{"expires when", `{"id":"a","_expires":"tomorrow"}`, `"tomorrow" in "_expires" is not an RFC 3339 time from 1970 to 2106, for example "2030-12-31T23:59:59Z"`},
		{"expires number", `{"id":"a","_expires":17}`, `17 in "_expires" is not an RFC 3339 time from 1970 to 2106, for example "2030-12-31T23:59:59Z"`},
		{"expires too late", `{"id":"a","_expires":"2107-01-01T00:00:00Z"}`, `"2107-01-01T00:00:00Z" in "_expires" is not an RFC 3339 time from 1970 to 2106, for example "2030-12-31T23:59:59Z"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := NewParser(&Options{MaxIDBytes: 1024}).Parse([]byte(test.line))
			require.EqualError(t, err, test.want)
		})
	}
}

func TestParserIsReusable(t *testing.T) {
	p := NewParser(nil)
	_, err := p.Parse([]byte(`{"id":"a","_delete":true,"x":[[[`))
	require.Error(t, err)
	got, err := p.Parse([]byte(`{"id":"b"}`))
	require.NoError(t, err)
	require.Equal(t, "b", string(got.ID))
	require.False(t, got.Delete)
}

// FuzzParse compares the parser with encoding/json: both accept the same texts, with the
// same ids and control fields.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"id":"a","_delete":true}`, `{"id":-12e+5,"_expires":"2030-06-01T14:00:00+02:00"}`,
		`{"id":"\ud83d\ude00\n","x":[1,2.5,{"y":null}],"z":false}`, `{"id":"a","x":"_"}`, `{"id":7,"\u005fdelete":true}`, `[]`, `{"id":"a"}x`, ``, `{"a":0.}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		parser := NewParser(nil)
		got, err := parser.Parse(line)
		if err == nil {
			require.True(t, json.Valid(line))
			if id := parser.SimpleID(line); id != nil {
				require.Equal(t, Entry{ID: id, Document: line}, got)
			}
			require.NotEmpty(t, got.ID)
			var fields map[string]any
			decoder := json.NewDecoder(bytes.NewReader(line))
			decoder.UseNumber()
			require.NoError(t, decoder.Decode(&fields))
			if fields["_id_base64"] != nil || fields["_document"] != nil || fields["_document_base64"] != nil {
				return // encoding/json has no equivalent
			}
			require.Equal(t, got.Delete, got.Document == nil)
			switch id := fields["id"].(type) {
			case string:
				require.Equal(t, id, string(got.ID))
			case json.Number:
				require.Equal(t, id.String(), string(got.ID))
			default:
				require.Fail(t, "neither string nor number", "%T", id)
			}
			require.Equal(t, fields["_delete"] == true, got.Delete)
			return
		}
		if strings.HasPrefix(err.Error(), "not JSON") { // another error may come first
			require.False(t, json.Valid(line), "%v", err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	g := jobs.New(1)
	var lines [][]byte
	bytes := 0
	for range 1000 {
		lines = append(lines, g.Next())
		bytes += len(lines[len(lines)-1])
	}
	p := NewParser(nil)
	b.ReportAllocs()
	b.SetBytes(int64(bytes / len(lines)))
	for i := 0; b.Loop(); i++ {
		if _, err := p.Parse(lines[i%len(lines)]); err != nil {
			b.Fatal(err)
		}
	}
}
