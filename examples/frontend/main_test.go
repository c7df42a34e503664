package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/boxcarrpc"
	"docstore/docservice/collection"
	"docstore/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves 60 documents until the test ends, and returns the address.
func serve(t *testing.T) (address string) {
	t.Helper()
	dir := t.TempDir()
	writer, err := queue.OpenWriter(dir, nil)
	require.NoError(t, err)
	for i := range 60 {
		_, err := writer.Append(fmt.Appendf(nil, "job-%02d", i), fmt.Appendf(nil, `{"id":"job-%02d"}`, i))
		require.NoError(t, err)
	}
	_, err = writer.Append([]byte("other"), []byte("not JSON"))
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	jobs, err := collection.Open("jobs", dir, filepath.Join(t.TempDir(), "index"), nil)
	require.NoError(t, err)
	require.NoError(t, jobs.WaitReady(t.Context()))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := boxcarrpc.NewServer(collection.NewService(jobs).Handle, nil)
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, boxcarrpc.ErrServerClosed)
		require.NoError(t, jobs.Close())
	})
	return listener.Addr().String()
}

func TestPageOfResults(t *testing.T) {
	f, err := newFrontend([]string{serve(t)}, "jobs", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer f.pool.Close()
	require.NoError(t, f.pool.WaitReady(t.Context()))

	w := httptest.NewRecorder()
	f.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/search?q=job-", nil))
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	var results []result
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &results))
	require.Len(t, results, resultsPerPage)
	require.Equal(t, `{"id":"job-49"}`, string(results[49].Document))

	results, err = f.results(t.Context(), []string{"job-01", "job-99", "other"})
	require.NoError(t, err, "a missing document does not fail a page")
	require.Equal(t, []result{{ID: "job-01", Document: json.RawMessage(`{"id":"job-01"}`)}, {ID: "job-99", Missing: "gone"}, {ID: "other", Missing: "not JSON"}}, results)

	w = httptest.NewRecorder()
	f.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/boxcar", nil))
	require.Equal(t, http.StatusOK, w.Code)
}

func TestErrors(t *testing.T) {
	f, err := newFrontend([]string{"127.0.0.1:1"}, "jobs", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer f.pool.Close()
	w := httptest.NewRecorder()
	f.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/search?q=job-", nil))
	require.GreaterOrEqual(t, w.Code, 500)
	w = httptest.NewRecorder()
	fail(w, fmt.Errorf("a page: %w", boxcarrpc.ErrPoolBusy))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
}
