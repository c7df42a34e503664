package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
	"docstore/docservice/server/internal/httpapi"
	"docstore/internal/servertest"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/stored"
)

// ask sends a request to a daemon. headers are names and values.
func ask(t *testing.T, d *Server, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true, ExpectContinueTimeout: time.Minute}}
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+d.HTTPAddress()+path, strings.NewReader(body))
	require.NoError(t, err)
	if len(body) > 1<<20 {
		request.Header.Set("Expect", "100-continue") // read a response that comes before the body is sent
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	recorder := httptest.NewRecorder()
	recorder.Code = response.StatusCode
	for name, values := range response.Header {
		recorder.Header()[name] = values
	}
	_, err = io.Copy(recorder.Body, response.Body)
	require.NoError(t, err)
	return recorder
}

// fillWith appends documents with a codec.
func fillWith(t *testing.T, dir string, options queue.WriterOptions, pairs ...string) {
	t.Helper()
	w, err := queue.OpenWriter(dir, &options)
	require.NoError(t, err)
	for i := 0; i < len(pairs); i += 2 {
		_, err := w.Append([]byte(pairs[i]), []byte(pairs[i+1]))
		require.NoError(t, err)
	}
	require.NoError(t, w.Flush())
	require.NoError(t, w.Close())
}

// plainBody returns the decoded body of a response.
func plainBody(t *testing.T, r *httptest.ResponseRecorder) string {
	t.Helper()
	var from io.Reader = r.Body
	switch coding := r.Header().Get("Content-Encoding"); coding {
	case "gzip":
		reader, err := gzip.NewReader(from)
		require.NoError(t, err)
		from = reader
	case "zstd":
		reader, err := zstd.NewReader(from, zstd.WithDecoderMaxWindow(httpapi.MaxZstdWindowBytes))
		require.NoError(t, err)
		defer reader.Close()
		from = reader
	default:
		require.Empty(t, coding)
	}
	body, err := io.ReadAll(from)
	require.NoError(t, err)
	return string(body)
}

// Documents of every codec arrive in every coding, with tags that differ by coding and
// change with the document.
func TestContentCodings(t *testing.T) {
	long := fmt.Sprintf(`{"id":"long","text":%q}`, strings.Repeat("words of a text ", httpapi.MinCompressBytes/16))
	for _, codec := range codec.Names() {
		t.Run(codec, func(t *testing.T) {
			dir := t.TempDir()
			fillWith(t, dir, queue.WriterOptions{Codec: codec}, "long", long, "short", `{}`, "text", strings.Repeat("not JSON ", 200), "empty", "")
			d, _ := startTestDaemon(t, testOptions(t, dir))
			waitReady(t, d)
			tags := map[string]bool{}
			for _, accept := range []string{"", "gzip", "zstd", "gzip, deflate, br, zstd"} {
				r := ask(t, d, "GET", "/documents/jobs/long", "", "Accept-Encoding", accept)
				require.Equal(t, http.StatusOK, r.Code)
				require.Equal(t, "application/json", r.Header().Get("Content-Type"))
				require.Equal(t, string(httpapi.Negotiate([]string{accept})), r.Header().Get("Content-Encoding"))
				require.Equal(t, fmt.Sprint(r.Body.Len()), r.Header().Get("Content-Length"))
				require.Equal(t, "Accept-Encoding", r.Header().Get("Vary"))
				require.Equal(t, long, plainBody(t, r))
				tag := r.Header().Get("ETag")
				require.Regexp(t, `^"1-\d+-0-[0-9a-f]{8}(-gzip|-zstd)?"$`, tag)
				tags[tag] = true

				again := ask(t, d, "GET", "/documents/jobs/long", "", "Accept-Encoding", accept, "If-None-Match", tag)
				require.Equal(t, http.StatusNotModified, again.Code)
				require.Equal(t, tag, again.Header().Get("ETag"))
				require.Empty(t, again.Body.String())
				require.Equal(t, http.StatusOK, ask(t, d, "GET", "/documents/jobs/text", "", "If-None-Match", tag).Code, "of another document")

				r = ask(t, d, "GET", "/documents/jobs/short", "", "Accept-Encoding", accept)
				require.Empty(t, r.Header().Get("Content-Encoding"))
				require.Equal(t, "{}", r.Body.String())
				r = ask(t, d, "GET", "/documents/jobs/text", "", "Accept-Encoding", accept)
				require.Equal(t, "application/octet-stream", r.Header().Get("Content-Type"))
				require.Equal(t, strings.Repeat("not JSON ", 200), plainBody(t, r))
				require.Empty(t, ask(t, d, "GET", "/documents/jobs/empty", "", "Accept-Encoding", accept).Body.String())
			}
			require.Len(t, tags, 3)

			fillWith(t, dir, queue.WriterOptions{Codec: codec}, "long", `{"id":"long"}`)
			require.Eventually(t, func() bool {
				return ask(t, d, "GET", "/documents/jobs/long", "", "If-None-Match", `"x", `+strings.Join(keys(tags), ", ")).Body.String() == `{"id":"long"}`
			}, 10*time.Second, time.Millisecond)
		})
	}
}

// A request with conditions or a range is answered as RFC 9110 says.
func TestConditionsAndRanges(t *testing.T) {
	text := strings.Repeat("0123456789", 100)
	dir := t.TempDir()
	fillWith(t, dir, queue.WriterOptions{Codec: "zstd"}, "a", text, "empty", "")
	d, _ := startTestDaemon(t, testOptions(t, dir))
	waitReady(t, d)
	whole := ask(t, d, "GET", "/documents/jobs/a", "")
	require.Equal(t, "bytes", whole.Header().Get("Accept-Ranges"))
	tag := whole.Header().Get("ETag")
	coded := ask(t, d, "GET", "/documents/jobs/a", "", "Accept-Encoding", "zstd").Header().Get("ETag")
	require.NotEqual(t, tag, coded)
	for _, c := range []struct {
		headers []string
		status  int
		body    string // of 206
		part    string
	}{
		{[]string{"Range", "bytes=0-4"}, 206, "01234", "bytes 0-4/1000"},
		{[]string{"Range", "bytes=-3"}, 206, "789", "bytes 997-999/1000"},
		{[]string{"Range", "bytes=998-2000"}, 206, "89", "bytes 998-999/1000"},
		{[]string{"Range", "bytes=0-1", "Accept-Encoding", "gzip, zstd"}, 206, "01", "bytes 0-1/1000"},
		{[]string{"Range", "bytes=0-1", "If-Range", tag}, 206, "01", "bytes 0-1/1000"},
		{[]string{"Range", "bytes=0-1", "If-Match", tag}, 206, "01", "bytes 0-1/1000"},
		{[]string{"Range", "bytes=0-1", "If-Range", `"another"`}, 200, "", ""},
		{[]string{"Range", "bytes=0-1", "If-Range", "W/" + tag}, 200, "", ""},
		{[]string{"Range", "bytes=0-1", "If-Range", "Sat, 29 Oct 1994 19:43:31 GMT"}, 200, "", ""},
		{[]string{"Range", "bytes=0-1,4-5"}, 200, "", ""},
		{[]string{"Range", "bytes=1000-"}, 416, "", "bytes */1000"},
		{[]string{"Range", "bytes=1000-", "If-Range", `"another"`}, 200, "", ""},
		{[]string{"If-Match", tag}, 200, "", ""},
		{[]string{"If-Match", "*"}, 200, "", ""},
		{[]string{"If-Match", `"another", ` + tag}, 200, "", ""},
		{[]string{"If-Match", `"another"`}, 412, "", ""},
		{[]string{"If-Match", "W/" + tag}, 412, "", ""},
		{[]string{"If-Match", coded}, 412, "", ""},
		{[]string{"If-Match", coded, "Accept-Encoding", "zstd"}, 200, "", ""},
		{[]string{"If-Match", `"another"`, "If-None-Match", tag}, 412, "", ""},
		{[]string{"If-Match", tag, "If-None-Match", tag}, 304, "", ""},
		{[]string{"If-None-Match", tag, "Range", "bytes=0-1"}, 304, "", ""},
		{[]string{"If-None-Match", "*"}, 304, "", ""},
		{[]string{"If-Modified-Since", "Sat, 29 Oct 2094 19:43:31 GMT"}, 200, "", ""},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			r := ask(t, d, method, "/documents/jobs/a", "", c.headers...)
			status, part := c.status, c.part
			if method == "HEAD" && (status == 206 || status == 416) { // Range is for GET
				status, part = 200, ""
			}
			require.Equal(t, status, r.Code, "%s %q", method, c.headers)
			require.Equal(t, part, r.Header().Get("Content-Range"), "%s %q", method, c.headers)
			switch {
			case method == "HEAD":
				require.Empty(t, r.Body.String())
			case status == 206:
				require.Equal(t, c.body, r.Body.String(), c.headers)
				require.Equal(t, tag, r.Header().Get("ETag"))
			case status == 200:
				require.Equal(t, text, plainBody(t, r), c.headers)
			case status > 400:
				require.Contains(t, r.Body.String(), `{"error":{"code":`)
			}
		}
	}
	require.Equal(t, 404, ask(t, d, "GET", "/documents/jobs/none", "", "If-Match", "*").Code)
	require.Equal(t, 404, ask(t, d, "GET", "/documents/jobs/none", "", "Range", "bytes=0-1").Code)
	require.Equal(t, 200, ask(t, d, "GET", "/documents/jobs/empty", "", "Range", "bytes=0-").Code)
}

func keys(m map[string]bool) (list []string) {
	for k := range m {
		list = append(list, k)
	}
	return list
}

// A document in a zstd frame is sent as it is stored; one in a larger window than decoders
// accept is not.
func TestZstdFramesPass(t *testing.T) {
	dir := t.TempDir()
	large := strings.Repeat("0123456789", httpapi.MaxZstdWindowBytes/10+1)
	long := strings.Repeat("words of a text ", 100)
	fillWith(t, dir, queue.WriterOptions{Codec: "zstd"}, "long", long, "large", large)
	d, _ := startTestDaemon(t, testOptions(t, dir))
	waitReady(t, d)
	sent, asStored, err := d.service.Get(t.Context(), []byte("jobs"), []byte("long"), codec.Built(), nil)
	require.NoError(t, err)
	require.True(t, asStored)
	form, err := stored.Parse(sent, []byte("long"))
	require.NoError(t, err)
	magic, rest, ok := form.ZstdFrame()
	require.True(t, ok)
	r := ask(t, d, "GET", "/documents/jobs/long", "", "Accept-Encoding", "zstd")
	require.Equal(t, magic+string(rest), r.Body.String())
	require.Equal(t, long, plainBody(t, r))
	r = ask(t, d, "GET", "/documents/jobs/large", "", "Accept-Encoding", "zstd")
	require.Equal(t, "zstd", r.Header().Get("Content-Encoding"))
	require.Equal(t, large, plainBody(t, r))
}

func TestBatchOverHTTP(t *testing.T) {
	dir := t.TempDir()
	servertest.Fill(t, dir, "a", `{"n":1}`, "text", "hello\nworld", "gone", "{}", "gone", "", "\xff", "{}", "17", "17", "bad", `{"id":"bad","x":"bbbbbbbb"}`)
	servertest.FlipByte(t, dir, "bbbbbbbb")
	d, _ := startTestDaemon(t, testOptions(t, dir))
	waitReady(t, d)
	found := func(id, document string) string {
		return fmt.Sprintf(`{"id":%q,"found":true,"document":%s}`, id, document)
	}
	missing := func(id string) string { return fmt.Sprintf(`{"id":%q,"found":false}`, id) }
	for _, c := range []struct{ body, want string }{
		{`["a","gone","a",17]`, found("a", `{"n":1}`) + missing("gone") + found("a", `{"n":1}`) + found("17", "17")},
		{"\"never\"\n\n{\"id\":\"a\"}\r\n{\"id_base64\":\"/w==\"}\n", missing("never") + found("a", `{"n":1}`) + `{"id_base64":"/w==","found":true,"document":{}}`},
		{`["text"]`, `{"id":"text","found":true,"document_base64":"aGVsbG8Kd29ybGQ="}`},
		{`["",""]`, strings.Repeat(`{"id":"","found":false,"code":"invalid_id","error":"docservice: invalid id: want 1 to 1024 bytes"}`, 2)},
		{`["a","bad"]`, found("a", `{"n":1}`) + `{"id":"bad","found":false,"code":"unavailable","error":"docservice: unavailable"}`},
	} {
		for _, path := range []string{"/documents/jobs", "/documents/jobs/"} {
			r := ask(t, d, "POST", path, c.body)
			require.Equal(t, http.StatusOK, r.Code, c.body)
			require.Equal(t, "application/x-ndjson", r.Header().Get("Content-Type"))
			require.Equal(t, c.want, strings.ReplaceAll(r.Body.String(), "\n", ""), c.body)
		}
	}
	// A batch without any document is answered too.
	r := ask(t, d, "POST", "/documents/jobs", `["bad","bad"]`)
	require.Equal(t, http.StatusOK, r.Code)
	require.Equal(t, 2, strings.Count(r.Body.String(), `"code":"unavailable"`))

	require.Contains(t, servertest.Get(d.http.Handler, "/metrics").Body.String(), `docstore_fetch_seconds_count{listener="http",method="BatchGet"} 11`)
}

// Wrong requests are refused with a code.
func TestWrongUseOverHTTP(t *testing.T) {
	dir := t.TempDir()
	servertest.Fill(t, dir, "a", `{"n":1}`)
	d, _ := startTestDaemon(t, testOptions(t, dir))
	waitReady(t, d)
	many := "[" + strings.Repeat("1,", docservice.MaxBatchIDs) + "1]"
	for _, c := range []struct{ method, path, body, encoding, code, want string }{
		{"POST", "/documents/jobs", "", "", "invalid_argument", "the body has no ids"},
		{"POST", "/documents/jobs", "[]", "", "invalid_argument", "the body has no ids"},
		{"POST", "/documents/jobs", "a", "", "invalid_argument", `line 1: "a": want a string`},
		{"POST", "/documents/jobs", "[\"a\"", "", "invalid_argument", "has no end"},
		{"POST", "/documents/jobs", "\"\xff\"", "", "invalid_argument", "not UTF-8"},
		{"POST", "/documents/jobs", many, "", "too_large", "more than 16384 ids"},
		{"POST", "/documents/jobs", strings.Repeat(" ", batchBodyBytes+1), "", "too_large", "more than 4 MiB"},
		{"POST", "/documents/jobs", "x", "gzip", "unsupported_media_type", "send the ids uncompressed"},
		{"POST", "/documents/other", `["a"]`, "", "no_collection", `no collection "other" here, only jobs`},
		{"POST", "/documents/", `["a"]`, "", "no_collection", `no collection "" here`},
		{"GET", "/documents/other/a", "", "", "no_collection", `no collection "other" here, only jobs`},
		{"GET", "/documents/jobs/b", "", "", "not_found", "not found"},
		{"GET", "/documents/jobs/" + strings.Repeat("x", 1025), "", "", "invalid_argument", "want 1 to 1024 bytes"},
		{"POST", "/documents/jobs/a", "", "", "method_not_allowed", "method POST: want GET or HEAD"},
		{"PUT", "/documents/jobs/a", "", "", "method_not_allowed", "method PUT: want GET or HEAD"},
		{"DELETE", "/documents/jobs", "", "", "method_not_allowed", "method DELETE: want POST"},
		{"POST", "/collections", "", "", "method_not_allowed", "method POST: want GET or HEAD"},
		{"GET", "/collections/other/count", "", "", "no_collection", `no collection "other"`},
		{"GET", "/collections/jobs", "", "", "no_path", "no such path"},
		{"GET", "/readyz?draining=1", "", "", "invalid_argument", "draining=1"},
	} {
		r := ask(t, d, c.method, c.path, c.body, "Content-Encoding", c.encoding, "Accept-Encoding", "zstd")
		var body struct{ Error httpapi.Error }
		require.NoError(t, json.Unmarshal(r.Body.Bytes(), &body), "%s %s: %s", c.method, c.path, r.Body)
		require.Equal(t, c.code, string(body.Error.Code), c.path)
		require.Contains(t, body.Error.Message, c.want)
		require.Equal(t, body.Error.Status(), r.Code)
		require.Equal(t, "application/json", r.Header().Get("Content-Type"))
		require.Empty(t, r.Header().Get("Content-Encoding"))
	}
	// The length of a body that is sent in chunks is limited, too.
	request := httptest.NewRequest(http.MethodPost, "http://localhost/documents/jobs", io.LimitReader(spaces{}, 2*batchBodyBytes))
	request.ContentLength = -1
	recorder := httptest.NewRecorder()
	d.http.Handler.ServeHTTP(recorder, request)
	require.Equal(t, http.StatusRequestEntityTooLarge, recorder.Code)
}

// A body that does not arrive in time is answered 408, which may be sent again, without the
// addresses that the error of the connection contains.
func TestSlowBodyOverHTTP(t *testing.T) {
	dir := t.TempDir()
	servertest.Fill(t, dir, "a", `{"n":1}`)
	d, _ := startTestDaemon(t, testOptions(t, dir))
	waitReady(t, d)
	server := httptest.NewUnstartedServer(d.http.Handler)
	server.Config.ReadTimeout = time.Millisecond // of the body too; the header arrives at once or there is no response
	server.Config.ReadHeaderTimeout = time.Minute
	server.Start()
	defer server.Close()
	body, unfinished := io.Pipe()
	defer unfinished.Close()
	response, err := server.Client().Post(server.URL+"/documents/jobs", "application/json", body)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusRequestTimeout, response.StatusCode, string(text))
	require.JSONEq(t, `{"error":{"code":"request_timeout","message":"the body did not arrive within 10s; send it again"}}`, string(text))
}

type spaces struct{}

func (spaces) Read(b []byte) (int, error) { return copy(b, bytes.Repeat([]byte(" "), len(b))), nil }

// Random batches over HTTP have the answers that a client over Boxcar gets.
func TestBatchesOverHTTPAndBoxcarAreEqual(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(7, 7))
	var pairs []string
	for i := range 2000 {
		pairs = append(pairs, fmt.Sprintf("id-%d", i), fmt.Sprintf(`{"n":%d,"x":%q}`, i, strings.Repeat("x", rng.IntN(2000))))
	}
	servertest.Fill(t, dir, pairs...)
	d, _ := startTestDaemon(t, testOptions(t, dir))
	waitReady(t, d)
	pool, err := boxcarrpc.NewPool(discovery.Static(d.BoxcarAddress()), &boxcarrpc.PoolOptions{Methods: docservice.IdempotentMethods()})
	require.NoError(t, err)
	defer pool.Close()
	client := docservice.NewClient(pool, "jobs")
	for _, accept := range []string{"", "gzip", "zstd"} {
		ids := make([]string, 1000)
		for i := range ids {
			ids[i] = fmt.Sprintf("id-%d", rng.IntN(2500))
		}
		body, err := json.Marshal(ids)
		require.NoError(t, err)
		r := ask(t, d, "POST", "/documents/jobs", string(body), "Accept-Encoding", accept)
		require.Equal(t, accept, r.Header().Get("Content-Encoding"))
		lines := bufio.NewScanner(strings.NewReader(plainBody(t, r)))
		require.NoError(t, client.GetMany(t.Context(), ids, func(i int, document []byte, err error) error {
			require.True(t, lines.Scan())
			want := fmt.Sprintf(`{"id":%q,"found":false}`, ids[i])
			if err == nil {
				want = fmt.Sprintf(`{"id":%q,"found":true,"document":%s}`, ids[i], document)
			}
			require.Equal(t, want, lines.Text())
			return nil
		}))
		require.False(t, lines.Scan())
	}
}

func TestCollectionsOverHTTP(t *testing.T) {
	dir := t.TempDir()
	servertest.Fill(t, dir, "a", `{"n":1}`)
	d, _ := startTestDaemon(t, testOptions(t, dir))
	waitReady(t, d)
	var body struct{ Collections []collectionSummary }
	require.NoError(t, json.Unmarshal(servertest.Get(d.http.Handler, "/collections").Body.Bytes(), &body))
	require.Len(t, body.Collections, 1)
	one := body.Collections[0]
	require.Equal(t, "jobs", one.Name)
	require.True(t, one.Ready)
	require.Len(t, one.Queue, 32)
	require.Zero(t, one.LagBytes)
}

// Requests over HTTP count against the limits of all listeners.
func TestRequestLimitsOverHTTP(t *testing.T) {
	dir := t.TempDir()
	servertest.Fill(t, dir, "a", `{"n":1}`)
	o := testOptions(t, dir)
	o.Limits.ClientRate, o.Limits.ClientBurst = 0.001, 2
	d, _ := startTestDaemon(t, o)
	waitReady(t, d)
	require.Equal(t, http.StatusOK, ask(t, d, "GET", "/documents/jobs/a", "").Code)
	require.Equal(t, http.StatusOK, ask(t, d, "POST", "/documents/jobs", `["a"]`).Code)
	for _, path := range []string{"/documents/jobs/a", "/collections", "/collections/jobs/count"} {
		r := ask(t, d, "GET", path, "")
		require.Equal(t, http.StatusTooManyRequests, r.Code)
		require.Equal(t, "1", r.Header().Get("Retry-After"))
		require.Contains(t, r.Body.String(), `"code":"resource_exhausted"`)
	}
	require.Equal(t, http.StatusOK, servertest.Get(d.http.Handler, "/readyz").Code, "health has no limit")
	other := httptest.NewRecorder()
	request := httptest.NewRequest(http.MethodGet, "http://localhost/documents/jobs/a", nil)
	request.RemoteAddr = "198.51.100.7:99"
	d.http.Handler.ServeHTTP(other, request)
	require.Equal(t, http.StatusOK, other.Code, "another client")
	require.EqualValues(t, 3, d.boxcar.Stats().RefusedBy["client_rate"])
}

// The budget counts unread batches until their connections are closed.
func TestBytesOfBatchesAreCounted(t *testing.T) {
	dir := t.TempDir()
	var pairs []string
	for i := range 20 {
		pairs = append(pairs, fmt.Sprint(i), strings.Repeat(fmt.Sprint(i), 1<<20))
	}
	servertest.Fill(t, dir, pairs...)
	d, _ := startTestDaemon(t, testOptions(t, dir))
	waitReady(t, d)
	body := "[" + strings.Repeat("1,2,3,4,5,6,7,8,9,10,", 10) + "1]"
	for _, coding := range []string{"identity", "zstd"} {
		var conns []net.Conn
		for range 20 {
			conn, err := net.Dial("tcp", d.HTTPAddress())
			require.NoError(t, err)
			_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			_, err = fmt.Fprintf(conn, "POST /documents/jobs HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: %s\r\nContent-Length: %d\r\n\r\n%s", coding, len(body), body)
			require.NoError(t, err)
			conns = append(conns, conn)
		}
		require.Eventually(t, func() bool { return d.messages.Stats().Used > 1<<20 }, 10*time.Second, time.Millisecond)
		require.Less(t, d.messages.Stats().Used, d.messages.Stats().Limit+64<<20)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.HTTPAddress()+"/readyz", nil)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		cancel()
		for _, conn := range conns {
			require.NoError(t, conn.Close())
		}
		http.DefaultClient.CloseIdleConnections()
		require.Eventually(t, func() bool { return d.messages.Stats().Used == 0 }, 20*time.Second, time.Millisecond)
	}
}
