package bucket_test

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/publishtest"
	"docstore/internal/testseed"
	"docstore/queue/bucket"
	"docstore/queue/publish"
)

// faultHandler executes requests with faults: some are executed twice, some fail before or
// after they were executed, some are slow, and some responses are truncated.
type faultHandler struct {
	next http.Handler
	mu   sync.Mutex
	rng  *rand.Rand
}

func (h *faultHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	fault, delay := h.rng.IntN(12), time.Duration(h.rng.IntN(5))*time.Millisecond
	h.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	execute := func(w http.ResponseWriter) {
		again := r.Clone(r.Context())
		again.Body = io.NopCloser(bytes.NewReader(body))
		h.next.ServeHTTP(w, again)
	}
	object := r.Method == http.MethodGet && !r.URL.Query().Has("list-type")
	switch {
	case fault == 0:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case fault == 1:
		execute(httptest.NewRecorder())
		w.WriteHeader(http.StatusInternalServerError)
		return
	case fault == 2:
		execute(httptest.NewRecorder())
	case fault == 3:
		time.Sleep(delay)
	case fault == 4 && object:
		response := httptest.NewRecorder()
		execute(response)
		for name, values := range response.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(response.Code)
		_, _ = w.Write(response.Body.Bytes()[:response.Body.Len()/2])
		panic(http.ErrAbortHandler)
	}
	execute(w)
}

// TestRequestsWithFaults puts and gets objects, and commits to a log from several writers.
// Each object is whole, and no commit is lost or executed twice.
func TestRequestsWithFaults(t *testing.T) {
	const writers, updates, objects = 4, 15, 50
	server := httptest.NewUnstartedServer(&faultHandler{next: s3Handler(t), rng: testseed.Rand(t)})
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	b := openS3(t, server.URL, bucket.Options{})
	var running sync.WaitGroup
	for w := range writers {
		running.Go(func() {
			for i := range objects / writers {
				name, content := fmt.Sprintf("object/%d/%d", w, i), proxyObject(i)
				if err := putObject(t, b, name, content); err != nil {
					t.Errorf("%+v", err)
				}
				if err := requireObject(t, b, name, content); err != nil {
					t.Errorf("%+v", err)
				}
			}
			commits, err := publish.OpenLog(t.Context(), b, time.Now)
			for range updates {
				if err == nil {
					_, err = commits.Update(t.Context(), publishtest.RaiseEpoch)
				}
			}
			if err != nil {
				t.Errorf("%+v", err)
			}
		})
	}
	running.Wait()
	checked, err := publish.Check(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, publish.Checked{Commits: writers * updates}, checked)
}
