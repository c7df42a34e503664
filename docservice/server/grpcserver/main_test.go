package grpcserver

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/docservice/server"
	"docstore/internal/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// options are those of a server; grpc is the address of gRPC, empty for none.
type options struct {
	server.Options
	grpc string
}

// testServer is a server with gRPC.
type testServer struct {
	*server.Server
	grpc *Protocol // nil: none
}

// testOptions returns options of a server on free ports with one collection, "jobs".
func testOptions(t *testing.T, queueDir string) options {
	return options{Options: server.Options{
		Collections: []server.Collection{{Name: "jobs", Source: queueDir}},
		DataDir:     filepath.Join(t.TempDir(), "data"),
		Boxcar:      "127.0.0.1:0",
		HTTP:        server.HTTP{Address: "127.0.0.1:0"},
		Memory:      64 << 20,
	}}
}

// startTestDaemon starts a server and stops it at the end of the test.
func startTestDaemon(t *testing.T, o options) (*testServer, *servertest.Buffer) {
	t.Helper()
	var log servertest.Buffer
	o.Logger = slog.New(slog.NewJSONHandler(&log, nil))
	s := &testServer{}
	if o.grpc != "" {
		s.grpc = New(Options{Address: o.grpc})
		o.Protocol = s.grpc
	}
	var err error
	s.Server, err = server.Start(o.Options)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Stop(time.Second))
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return s, &log
}

func waitReady(t *testing.T, s *testServer) {
	t.Helper()
	require.NoError(t, s.Collections()[0].WaitReady(t.Context()))
}
