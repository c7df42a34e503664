package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

func TestParseIDs(t *testing.T) {
	for body, want := range map[string][]string{
		"":                             nil,
		" \n\r\n":                      nil,
		"[]":                           nil,
		`["a", 17 ,{"id":"b"}]` + "\n": {"a", "17", "b"},
		"\"a\"\n\n 17\r\n{\"id_base64\":\"/w==\"}": {"a", "17", "\xff"},
		`"a\ud83d\ude00\n"`:                        {"a😀\n"},
		`[""]`:                                     {""},
		`{"id":-5}`:                                {"-5"},
		`"\\ud800"`:                                {`\ud800`},
		`["a","a"]`:                                {"a", "a"},
	} {
		ids, err := ParseIDs([]byte(body), 3)
		require.NoError(t, err, body)
		require.Equal(t, want, ids, body)
	}
}

func TestParseIDsRefuses(t *testing.T) {
	for _, c := range []struct {
		body string
		code Code
		want string
	}{
		{"\"\xff\"", CodeInvalidArgument, "the body is not UTF-8"},
		{`["a","b","c","d"]`, CodeTooLarge, "more than 3 ids"},
		{"1\n2\n3\n4", CodeTooLarge, "more than 3 ids"},
		{"4711\nabc", CodeInvalidArgument, `line 2: "abc": want a string, an integer`},
		{`[1.5]`, CodeInvalidArgument, `id 1: "1.5": want a string`},
		{`["a",null]`, CodeInvalidArgument, "id 2: "},
		{`["a"`, CodeInvalidArgument, "has no end"},
		{`["a"]x`, CodeInvalidArgument, "follow the array"},
		{`["a" "b"]`, CodeInvalidArgument, "id 2: "},
		{`["a",]`, CodeInvalidArgument, "id 2: "},
		{`["a\q"]`, CodeInvalidArgument, "id 1: "},
		{`"\ud800"`, CodeInvalidArgument, "line 1: half a surrogate pair"},
		{`"\ude00\ud83d"`, CodeInvalidArgument, "half a surrogate pair"},
		{`{"id":"\ud800x"}`, CodeInvalidArgument, "half a surrogate pair"},
		{`{}`, CodeInvalidArgument, `want one of "id" and "id_base64"`},
		{`{"id":"a","id_base64":"YQ=="}`, CodeInvalidArgument, `want one of "id" and "id_base64"`},
		{`{"id":null}`, CodeInvalidArgument, `want one of "id" and "id_base64"`},
		{`{"id":["a"]}`, CodeInvalidArgument, "want a string"},
		{`{"id":{"id":"a"}}`, CodeInvalidArgument, `"id" is an object`},
		{`{"id_base64":"?"}`, CodeInvalidArgument, "line 1: "},
		{`{"key":"a"}`, CodeInvalidArgument, "unknown field"},
		{`{"id":"a"}{`, CodeInvalidArgument, "bytes follow the object"},
		{`"a" "b"`, CodeInvalidArgument, "line 1: "},
		{strings.Repeat("x", 5000), CodeInvalidArgument, `x": want a string`},
	} {
		_, err := ParseIDs([]byte(c.body), 3)
		var refused *Error
		require.ErrorAs(t, err, &refused, c.body)
		require.Equal(t, c.code, refused.Code, c.body)
		require.Contains(t, refused.Message, c.want)
		require.Less(t, len(refused.Message), 200)
	}
}

// FuzzParseIDs: the ids of a valid body are those that package json decodes; every error is
// an *Error.
func FuzzParseIDs(f *testing.F) {
	for _, seed := range []string{`["a",17,{"id":"b"}]`, "\"a\"\n17\n{\"id_base64\":\"/w==\"}", `["\ud83d\ude00","\ud800"]`, `[[1]]`, `["a"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		ids, err := ParseIDs(body, 100)
		if err != nil {
			var refused *Error
			require.ErrorAs(t, err, &refused)
			require.Nil(t, ids)
			return
		}
		require.LessOrEqual(t, len(ids), 100)
		var again bytes.Buffer // the ids, written as an array, are the same ids
		encoder := json.NewEncoder(&again)
		elements := make([]any, len(ids))
		for i, id := range ids {
			if elements[i] = id; !utf8.ValidString(id) {
				elements[i] = map[string]string{"id_base64": base64.StdEncoding.EncodeToString([]byte(id))}
			}
		}
		require.NoError(t, encoder.Encode(elements))
		same, err := ParseIDs(again.Bytes(), 100)
		require.NoError(t, err)
		require.Equal(t, ids, same)

		var texts []string // as package json decodes an array of strings
		if bytes.HasPrefix(body, []byte("[")) && json.Unmarshal(body, &texts) == nil && !strings.Contains(strings.Join(texts, ""), "\ufffd") && !bytes.Contains(body, []byte("null")) {
			require.Equal(t, len(texts), len(ids))
			for i := range ids {
				require.Equal(t, texts[i], ids[i])
			}
		}
	})
}

func TestNegotiate(t *testing.T) {
	for header, want := range map[string]Coding{
		"":                               Identity,
		"gzip":                           Gzip,
		"gzip, deflate, br, zstd":        Zstd,
		"GZIP;q=1, zstd;q=0.5":           Gzip,
		"zstd;q=0, gzip":                 Gzip,
		"zstd;q=0":                       Identity,
		"*":                              Zstd,
		"*;q=0.5, zstd;q=0":              Gzip,
		"identity, gzip;q=0.5":           Identity,
		"identity;q=0":                   Identity,
		"identity;q=0, gzip":             Gzip,
		"x-gzip":                         Gzip,
		"gzip;q=2":                       Identity,
		"gzip;q=NaN":                     Identity,
		"gzip;q=x, br":                   Identity,
		"gzip ; q=0.1":                   Gzip,
		",;,":                            Identity,
		"deflate":                        Identity,
		"gzip;level=1;q=0.3,zstd; Q=0.4": Zstd,
	} {
		require.Equal(t, want, Negotiate([]string{header}), header)
	}
	require.Equal(t, Zstd, Negotiate([]string{"gzip", "zstd"}), "two headers")
	require.Equal(t, Identity, Negotiate(nil))
}

func decompress(t *testing.T, c Coding, body []byte) []byte {
	t.Helper()
	var from io.Reader = bytes.NewReader(body)
	switch c {
	case Gzip:
		r, err := gzip.NewReader(from)
		require.NoError(t, err)
		from = r
	case Zstd:
		r, err := zstd.NewReader(from, zstd.WithDecoderMaxWindow(MaxZstdWindowBytes))
		require.NoError(t, err)
		defer r.Close()
		from = r
	}
	plain, err := io.ReadAll(from)
	require.NoError(t, err)
	return plain
}

func TestCompressors(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := make([]byte, 10<<10)
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	text := bytes.Repeat([]byte(`{"id":"4711","title":"Lift operator"}`), 1<<19/37)
	for _, c := range []Coding{Identity, Gzip, Zstd} {
		for range 3 { // compressors are reused
			for _, body := range [][]byte{nil, []byte("short"), random, text} {
				coded, used := c.Compress(body)
				require.Equal(t, string(body), string(decompress(t, used, coded)))
				if len(body) != len(text) || c == Identity {
					require.Equal(t, Identity, used)
				} else {
					require.Equal(t, c, used)
					require.Less(t, len(coded), len(body)/10)
				}
				var stream bytes.Buffer
				w := c.NewWriter(&stream)
				for part := range bytes.Lines(body) {
					_, err := w.Write(part)
					require.NoError(t, err)
				}
				require.NoError(t, w.Close())
				require.Equal(t, string(body), string(decompress(t, c, stream.Bytes())))
			}
		}
	}
}

type brokenWriter struct{}

var errBroken = errors.New("broken")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

// A compressor whose response failed can be used again.
func TestCompressorAfterFailure(t *testing.T) {
	text := bytes.Repeat([]byte("text "), 1<<20)
	for _, c := range []Coding{Gzip, Zstd} {
		for range 4 {
			w := c.NewWriter(brokenWriter{})
			_, err := w.Write(text)
			if closed := w.Close(); err == nil {
				err = closed
			}
			require.ErrorIs(t, err, errBroken)
			coded, used := c.Compress(text)
			require.Equal(t, c, used)
			require.Equal(t, string(text), string(decompress(t, c, coded)))
		}
	}
}

func TestParseRange(t *testing.T) {
	for header, want := range map[string]string{
		"bytes=0-":                               "bytes 0-9/10",
		"bytes=0-0":                              "bytes 0-0/10",
		"Bytes = 2-4":                            "bytes 2-4/10",
		"bytes=5-99":                             "bytes 5-9/10",
		"bytes=-3":                               "bytes 7-9/10",
		"bytes=-99":                              "bytes 0-9/10",
		"bytes=9-9":                              "bytes 9-9/10",
		"bytes=10-":                              "refused",
		"bytes=10-12":                            "refused",
		"bytes=-0":                               "refused",
		"bytes=" + strings.Repeat("9", 40) + "-": "refused",
		"bytes=0-1,3-4":                          "whole", // several: RFC 9110 permits the whole
		"bytes=4-2":                              "whole",
		"bytes=-":                                "whole",
		"bytes=+1-2":                             "whole",
		"bytes=1-x":                              "whole",
		"bytes=x-1":                              "whole",
		"bytes=--1":                              "whole",
		"bytes":                                  "whole",
		"lines=0-1":                              "whole",
	} {
		part, ok, err := ParseRange([]string{header}, 10)
		switch {
		case err != nil:
			require.Equal(t, "refused", want, header)
			require.Equal(t, http.StatusRequestedRangeNotSatisfiable, err.Status())
			require.False(t, ok)
		case !ok:
			require.Equal(t, "whole", want, header)
		default:
			require.Equal(t, want, part.ContentRange(10), header)
		}
	}
	for _, values := range [][]string{nil, {"bytes=0-1", "bytes=2-3"}} {
		_, ok, err := ParseRange(values, 10)
		require.Nil(t, err)
		require.False(t, ok)
	}
	_, ok, err := ParseRange([]string{"bytes=0-"}, 0)
	require.Nil(t, err)
	require.False(t, ok, "an empty document has no part")
}

func TestAllowsMatch(t *testing.T) {
	for header, want := range map[string]bool{`"a"`: true, `*`: true, `"x", "a"`: true, `W/"a"`: false, `"x"`: false, ``: false, `a`: false} {
		require.Equal(t, want, AllowsMatch([]string{header}, `"a"`), header)
	}
	require.True(t, AllowsMatch([]string{`"x"`, `"a"`}, `"a"`))
	require.False(t, AllowsMatch([]string{`,`}, ""), "no tag")
}

func TestETags(t *testing.T) {
	require.Equal(t, `"1-2"`, ETag("1-2", Identity))
	require.Equal(t, `"1-2-zstd"`, ETag("1-2", Zstd))
	for header, want := range map[string]string{
		`"1-2"`: `"1-2"`, `"0", W/"1-2-gzip"`: `"1-2-gzip"`, `*`: `"1-2"`, ` "1-2-zstd" `: `"1-2-zstd"`,
		`"1-3"`: "", ``: "", `1-2`: "", `"1-2-br"`: "",
	} {
		tag, ok := MatchETag([]string{`"x"`, header}, "1-2")
		require.Equal(t, want != "", ok, header)
		require.Equal(t, want, tag, header)
	}
	_, ok := MatchETag([]string{`"", "-gzip"`}, "")
	require.False(t, ok, "a document without a version has no tag")
	_, ok = MatchETag([]string{`*`}, "")
	require.True(t, ok)
}

// Every code has a status, and a mux answers with errors, also for unknown paths and
// methods.
func TestErrors(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /known", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", "x")
		Errorf(CodeUnavailable, "<%d>", 7).Write(w)
	})
	for _, c := range []struct{ method, path, status, allow, body string }{
		{"GET", "/known", "503", "", `{"error":{"code":"unavailable","message":"<7>"}}`},
		{"GET", "/other", "404", "", `{"error":{"code":"no_path","message":"no such path; see /openapi.yaml"}}`},
		{"POST", "/known", "405", "GET, HEAD", `{"error":{"code":"method_not_allowed","message":"method POST: want GET or HEAD"}}`},
	} {
		w := httptest.NewRecorder()
		Routes(mux).ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		require.Equal(t, c.status, w.Result().Status[:3])
		require.Equal(t, c.body, strings.TrimSpace(w.Body.String()))
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		require.Equal(t, c.allow, w.Header().Get("Allow"))
		require.Empty(t, w.Header().Get("ETag"))
		require.Equal(t, c.status == "503", w.Header().Get("Retry-After") != "")
	}
	for code := range statuses {
		require.GreaterOrEqual(t, Errorf(code, "").Status(), 400)
	}
}
