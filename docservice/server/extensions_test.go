package server

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/docservice/collection"
	"docstore/docservice/readiness"
	"docstore/docservice/server/livepage"
	"docstore/internal/servertest"
)

// testSource opens the collection of a URL from a queue directory.
type testSource struct {
	queueDir string
	closed   bool
	held     *testHeld
	*Server
}

func (s *testSource) Start(d *Server) (Parts, error) {
	s.Server = d
	return Parts{
		Routes: func(mux *http.ServeMux) {
			mux.HandleFunc("GET /fleet", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
		},
	}, nil
}

func (s *testSource) Open(c Collection, o *collection.Options) (Held, error) {
	opened, err := collection.Open(c.Name, s.queueDir, filepath.Join(s.DataDir(), c.Name), o)
	if err != nil {
		return nil, err
	}
	s.Service().Add(opened)
	s.held = &testHeld{local: local{opened}, ready: make(chan struct{})}
	return s.held, nil
}

func (s *testSource) Close() error {
	s.closed = true
	return nil
}

// testHeld is replicated, and ready when the test sets it.
type testHeld struct {
	local
	ready chan struct{}
}

func (h *testHeld) Column() *livepage.Column {
	select {
	case <-h.ready:
		return &livepage.Column{Report: readiness.Report{State: readiness.Ready}}
	default:
		return &livepage.Column{Report: readiness.Report{State: readiness.Fetching, Cause: "the test is not ready"}}
	}
}

// A Source opens the collections of URLs: their readiness is that of the daemon, which is
// drained meanwhile, and they are served over HTTP.
func TestSource(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	source := &testSource{queueDir: queueDir}
	o := testOptions(t, queueDir)
	o.Collections = append(o.Collections, Collection{"remote", "test://remote"})
	o.Source = source
	t.Cleanup(func() { require.True(t, source.closed) })
	d, _ := startTestDaemon(t, o)
	for _, c := range d.Collections() {
		require.NoError(t, c.WaitReady(t.Context()))
	}

	require.False(t, d.Ready())
	require.Contains(t, servertest.Get(d.HTTPHandler(), "/readyz").Body.String(), "the test is not ready")
	require.Contains(t, servertest.Get(d.HTTPHandler(), "/collections").Body.String(), `{"name":"remote","ready":false,"state":"fetching","reason":"fetching: the test is not ready"`)
	require.True(t, d.Boxcar().Stats().Draining)
	close(source.held.ready)
	require.True(t, d.Ready())
	require.Equal(t, http.StatusOK, servertest.Get(d.HTTPHandler(), "/readyz").Code)
	servertest.Until(t.Context(), func() bool { return !d.Boxcar().Stats().Draining })

	require.Equal(t, http.StatusTeapot, servertest.Get(d.HTTPHandler(), "/fleet").Code)
	require.Equal(t, `{"id":"a"}`, servertest.Get(d.HTTPHandler(), "/documents/remote/a").Body.String())
}

// Without a Source a URL is an error, and collections opened before it are closed.
func TestURLNeedsASource(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.Collections = append(o.Collections, Collection{"remote", "s3://bucket/remote"})
	_, err := Start(o)
	require.ErrorContains(t, err, "--collection remote=s3://bucket/remote: this program serves only queue directories")
}

// Settings of which a collection cannot be opened do not change the limits either.
func TestFailedSettingsChangeNoLimit(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.Limits.InFlight = 1
	d, _ := startTestDaemon(t, o)
	o.Limits.InFlight = 2
	o.Collections = append(o.Collections, Collection{"remote", "s3://bucket/remote"})
	require.ErrorContains(t, d.Apply(&o), "this program serves only queue directories")
	peer := &boxcarrpc.Peer{Identity: boxcarrpc.Identity{Kind: boxcarrpc.TokenIdentity, Name: "a"}}
	leave, err := d.boxcar.Admit(peer.Client(), false)
	require.NoError(t, err)
	defer leave()
	_, err = d.boxcar.Admit(peer.Client(), false)
	require.Error(t, err)
}
