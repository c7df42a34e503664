//go:build !race

// Under the race detector a sync.Pool drops objects at random.

package server

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/servertest"
)

// nullWriter is a ResponseWriter that discards the response.
type nullWriter struct{ header http.Header }

func (w *nullWriter) Header() http.Header         { return w.header }
func (w *nullWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *nullWriter) WriteHeader(int)             {}

// A document over HTTP costs four allocations besides those of net/http: its version, the tag
// with it, its length, and the values of both headers.
func TestAllocationsOfADocumentOverHTTP(t *testing.T) {
	dir := t.TempDir()
	servertest.Fill(t, dir, "a", `{"id":"a","text":"some words"}`)
	d, _ := startTestDaemon(t, testOptions(t, dir))
	waitReady(t, d)
	api := newDocumentAPI(d)
	for _, accept := range []string{"", "zstd, gzip;q=0.5"} {
		r := httptest.NewRequest(http.MethodGet, "http://localhost/documents/jobs/a", nil)
		r.Header.Set("Accept-Encoding", accept)
		w := &nullWriter{header: http.Header{}}
		require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { api.serve(w, r) }), 4.0, accept)
		require.Equal(t, []string{"application/json"}, w.header["Content-Type"])
	}
}
