package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/server/livepage"
	"docstore/internal/servertest"
)

// errorBody is the body of an error; message is escaped as in JSON.
func errorBody(code, message string) string {
	return fmt.Sprintf(`{"error":{"code":%q,"message":"%s"}}`+"\n", code, message)
}

func TestDocumentsOverHTTP(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir,
		"a", `{"id":"a"}`, "text", "hello, world", "gone", `{}`, "gone", "",
		"a/b", `{"id":"a/b"}`, "a//b", `{"id":"a//b"}`, "../x", `{"id":"../x"}`, "ü ?%", `{"id":"ü ?%"}`)
	d, _ := startTestDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	handler := d.http.Handler
	for _, test := range []struct {
		path   string
		status int
		kind   string
		body   string
	}{
		{"/documents/jobs/a", 200, "application/json", `{"id":"a"}`},
		{"/documents/jobs/text", 200, "application/octet-stream", "hello, world"},
		{"/documents/jobs/a/b", 200, "application/json", `{"id":"a/b"}`},
		{"/documents/jobs/a%2Fb", 200, "application/json", `{"id":"a/b"}`},
		{"/documents/jobs/a//b", 200, "application/json", `{"id":"a//b"}`},
		{"/documents/jobs/../x", 200, "application/json", `{"id":"../x"}`},
		{"/documents/jobs/%C3%BC%20%3F%25", 200, "application/json", `{"id":"ü ?%"}`},
		{"/documents/jobs/gone", 404, "application/json", errorBody("not_found", "not found")},
		{"/documents/jobs/never", 404, "application/json", errorBody("not_found", "not found")},
		{"/documents/resumes/a", 404, "application/json", errorBody("no_collection", `no collection \"resumes\" here, only jobs`)},
		{"/documents/jobs/", 400, "application/json", errorBody("invalid_argument", "docservice: invalid id: want 1 to 1024 bytes")},
		{"/documents/jobs", 400, "application/json", errorBody("invalid_argument", "docservice: invalid id: want 1 to 1024 bytes")},
		{"/healthz", 200, "text/plain; charset=utf-8", "ok\n"},
		{"/nothing", 404, "application/json", errorBody("no_path", "no such path; see /openapi.yaml")},
	} {
		t.Run(test.path, func(t *testing.T) {
			r := servertest.Get(handler, test.path)
			require.Equal(t, test.status, r.Code)
			require.Equal(t, test.kind, r.Header().Get("Content-Type"))
			require.Equal(t, test.body, r.Body.String())
		})
	}

	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "http://localhost/documents/jobs/a", nil))
	require.Equal(t, http.StatusMethodNotAllowed, recorder.Code)
	require.Contains(t, servertest.Get(handler, "/").Body.String(), "<title>")
	require.Equal(t, http.StatusOK, servertest.Get(handler, "/debug/pprof/goroutine").Code)
	if !t.Failed() {
		requireMetrics(t, servertest.Get(handler, "/metrics").Body.String())
	}

	// Once over the listener.
	response, err := http.Get("http://" + d.HTTPAddress() + "/documents/jobs/a")
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, `{"id":"a"}`, string(body))
	http.DefaultClient.CloseIdleConnections()
}

// requireMetrics checks the metrics after TestDocumentsOverHTTP.
func requireMetrics(t *testing.T, text string) {
	t.Helper()
	for _, want := range []string{
		`docstore_documents_served_total{answer="found",collection="jobs"} 7`,
		`docstore_documents_served_total{answer="not_found",collection="jobs"} 2`,
		`docstore_documents_served_total{answer="error",collection="jobs"} 0`,
		`docstore_fetch_seconds_count{listener="http",method="Get"} 10`,
		`docstore_fetch_seconds_count{listener="boxcar",method="BatchGet"} 0`,
		`docstore_collection_ready{collection="jobs"} 1`,
		`docstore_tail_lag_seconds{collection="jobs"} 0`,
		`docstore_tail_lag_bytes{collection="jobs"} 0`,
		`docstore_tail_entries_total{collection="jobs"} 8`,
		`docstore_tail_position_segment{collection="jobs"} 1`,
		`docstore_faults{collection="jobs",effect="tail_stopped"} 0`,
		`docstore_queue_documents{collection="jobs"} 7`,
		`docstore_queue_deletes{collection="jobs"} 1`,
		`docstore_index_tables{collection="jobs"} 0`,
		`boxcar_server_connections 0`,
		`boxcar_server_requests_total 0`,
	} {
		require.Contains(t, text, want+"\n")
	}
	require.Regexp(t, regexp.MustCompile(`(?m)^docstore_build_info\{commit="[^"]+",go="go[^"]+",version="[^"]*"\} 1$`), text)
	require.Contains(t, text, "go_goroutines")
}

func decodeReadiness(t *testing.T, r *httptest.ResponseRecorder) (body Readiness) {
	t.Helper()
	require.NoError(t, json.Unmarshal(r.Body.Bytes(), &body), r.Body.String())
	return body
}

func TestReadiness(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	d, _ := startTestDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	r := servertest.Get(d.http.Handler, "/readyz")
	require.Equal(t, http.StatusOK, r.Code)
	body := decodeReadiness(t, r)
	require.True(t, body.Ready)
	require.True(t, body.Collections["jobs"].Ready)
	require.Empty(t, body.Collections["jobs"].Faults)

	d.boxcar.Drain()
	for path, status := range map[string]int{
		"/readyz": http.StatusOK, "/readyz?draining=200": http.StatusOK, "/readyz?draining=503": http.StatusServiceUnavailable,
	} {
		r = servertest.Get(d.http.Handler, path)
		require.Equal(t, status, r.Code, path)
		require.Equal(t, status == http.StatusOK, decodeReadiness(t, r).Ready, path)
		require.True(t, decodeReadiness(t, r).Draining, path)
	}
	require.Equal(t, http.StatusBadRequest, servertest.Get(d.http.Handler, "/readyz?draining=no").Code)
	d.boxcar.Undrain()
	r = servertest.Get(d.http.Handler, "/readyz?draining=503")
	require.Equal(t, http.StatusOK, r.Code)
	require.False(t, decodeReadiness(t, r).Draining)

	d.ending.Store(true)
	r = servertest.Get(d.http.Handler, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, r.Code)
	require.True(t, decodeReadiness(t, r).Ending)
}

// TestDamageIsReported: a wrong byte in a document makes that id unavailable and is
// reported; the daemon stays ready and serves the rest.
func TestDamageIsReported(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "good", `{"id":"good","x":"aaaaaaaa"}`, "bad", `{"id":"bad","x":"bbbbbbbb"}`)
	segment := servertest.FlipByte(t, queueDir, "bbbbbbbb")
	d, log := startTestDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	require.Equal(t, http.StatusServiceUnavailable, servertest.Get(d.http.Handler, "/documents/jobs/bad").Code)
	require.Equal(t, http.StatusOK, servertest.Get(d.http.Handler, "/documents/jobs/good").Code)

	r := servertest.Get(d.http.Handler, "/readyz")
	require.Equal(t, http.StatusOK, r.Code)
	faults := decodeReadiness(t, r).Collections["jobs"].Faults
	require.Len(t, faults, 1)
	require.Equal(t, uint32(1), faults[0].Segment)
	require.Positive(t, faults[0].Offset)
	require.Equal(t, segment, faults[0].Path)
	require.NotEmpty(t, faults[0].Reason)
	require.False(t, faults[0].StopsTail)
	metrics := servertest.Get(d.http.Handler, "/metrics").Body.String()
	require.Contains(t, metrics, `docstore_faults{collection="jobs",effect="documents_unavailable"} 1`)
	require.Contains(t, metrics, `docstore_fault_info{collection="jobs",effect="documents_unavailable",offset=`)
	require.Contains(t, metrics, `docstore_documents_served_total{answer="unavailable",collection="jobs"} 1`)
	// The fault is reported before it is logged.
	servertest.Until(t.Context(), func() bool { return strings.Contains(log.String(), filepath.Base(segment)) })
}

// TestStoppedTail: a wrong byte in a table stops the tail, and the daemon is not ready.
func TestStoppedTail(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "first", `{"id":"first"}`)
	servertest.Fill(t, queueDir, "second-id-in-a-table", `{"x":1}`)
	servertest.FlipByte(t, queueDir, "second-id-in-a-table")
	d, _ := startTestDaemon(t, testOptions(t, queueDir))
	var body Readiness
	servertest.Until(t.Context(), func() bool {
		r := servertest.Get(d.http.Handler, "/readyz")
		require.Equal(t, http.StatusServiceUnavailable, r.Code)
		body = decodeReadiness(t, r)
		return len(body.Collections["jobs"].Faults) > 0
	})
	jobs := body.Collections["jobs"]
	require.True(t, jobs.Faults[0].StopsTail)
	require.Contains(t, jobs.Reason, "reading the queue failed: ")
	require.Equal(t, http.StatusOK, servertest.Get(d.http.Handler, "/documents/jobs/first").Code)
	require.Equal(t, http.StatusServiceUnavailable, servertest.Get(d.http.Handler, "/documents/jobs/second-id-in-a-table").Code)
	require.Contains(t, servertest.Get(d.http.Handler, "/metrics").Body.String(), `docstore_faults{collection="jobs",effect="tail_stopped"} 1`)
}

// A replacement is reported, and the daemon stays ready.
func TestReadinessReportsReplacement(t *testing.T) {
	r := describeReadiness(collection.Status{Replacement: &collection.Replacement{
		Queue: [16]byte{0xab}, TailedBytes: 10, PresentBytes: 30, Faults: []collection.Fault{{Reason: "it forked", StopsTail: true}},
	}}, livepage.Readiness{Ready: true})
	require.True(t, r.Ready)
	require.Equal(t, "ab"+strings.Repeat("0", 30), r.Replacement.Queue)
	require.EqualValues(t, 20, r.Replacement.LagBytes)
	require.Equal(t, []string{"it forked (the queue is not read beyond it)"}, r.Replacement.Faults)
}

// The budget counts unread documents and exports over HTTP until their connections are
// closed; other clients are served meanwhile.
func TestBytesOverHTTPAreCounted(t *testing.T) {
	queueDir := t.TempDir()
	var pairs []string
	for i := range 20 {
		pairs = append(pairs, fmt.Sprint(i), strings.Repeat(fmt.Sprint(i), 1<<20))
	}
	servertest.Fill(t, queueDir, pairs...)
	d, _ := startTestDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	for _, path := range []string{"/documents/jobs/7", "/collections/jobs/export"} {
		var conns []net.Conn
		for range 30 {
			conn, err := net.Dial("tcp", d.HTTPAddress())
			require.NoError(t, err)
			_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			_, err = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
			require.NoError(t, err)
			conns = append(conns, conn)
		}
		require.Eventually(t, func() bool { return d.messages.Stats().Used > 1<<20 }, 10*time.Second, time.Millisecond)
		require.Less(t, d.messages.Stats().Used, d.messages.Stats().Limit+12<<20)
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
		require.Eventually(t, func() bool { return d.messages.Stats().Used == 0 }, 20*time.Second, time.Millisecond, path)
	}
}

// TestExportLeavesMemory: an export whose reader is slow leaves memory for other responses to its client.
func TestExportLeavesMemory(t *testing.T) {
	queueDir := t.TempDir()
	var pairs, ids []string
	for i := range 1000 {
		document := make([]byte, 20<<10) // that is not compressed
		_, _ = rand.Read(document)
		ids, pairs = append(ids, fmt.Sprint(i)), append(pairs, fmt.Sprint(i), string(document))
	}
	servertest.Fill(t, queueDir, pairs...)
	o := testOptions(t, queueDir)
	o.Memory = MinMemory
	d, _ := startTestDaemon(t, o)
	waitReady(t, d)
	conn, err := net.Dial("tcp", d.HTTPAddress())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = io.WriteString(conn, "GET /collections/jobs/export HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	go func() { // slowly, but not so slowly that the connection is closed
		for part, err := make([]byte, 16<<10), error(nil); err == nil; time.Sleep(50 * time.Millisecond) {
			_, err = io.ReadFull(conn, part)
		}
	}()
	require.Eventually(t, func() bool { return d.messages.Stats().Used > 64<<10 }, 10*time.Second, time.Millisecond)
	pool, err := boxcarrpc.NewPool(discovery.Static(d.BoxcarAddress()), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second) // a reservation fails after ten
	defer cancel()
	require.NoError(t, docservice.NewClient(pool, "jobs").GetMany(ctx, ids[:100], func(_ int, _ []byte, err error) error { return err }))
}
