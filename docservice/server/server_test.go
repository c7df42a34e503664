package server

import (
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/internal/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testToken = "5f0c9d3be1a94f0fb1f7c0a1"

// testOptions returns options of a daemon on free ports with one collection, "jobs".
func testOptions(t *testing.T, queueDir string) Options {
	return Options{
		Collections: []Collection{{"jobs", queueDir}},
		DataDir:     filepath.Join(t.TempDir(), "data"),
		Boxcar:      "127.0.0.1:0",
		HTTP:        HTTP{Address: "127.0.0.1:0"},
		Memory:      64 << 20,
	}
}

// startTestDaemon starts a daemon and stops it at the end of the test.
func startTestDaemon(t *testing.T, o Options) (*Server, *servertest.Buffer) {
	t.Helper()
	var log servertest.Buffer
	o.Logger = slog.New(slog.NewJSONHandler(&log, nil))
	d, err := Start(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, d.Stop(time.Second))
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return d, &log
}

func waitReady(t *testing.T, d *Server) {
	t.Helper()
	require.NoError(t, d.Collections()[0].WaitReady(t.Context()))
}

// TestFailedListenerStopsDaemon: the daemon exits, to be restarted, if a listener fails.
func TestFailedListenerStopsDaemon(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	d, err := Start(testOptions(t, queueDir))
	require.NoError(t, err)
	require.NoError(t, d.listeners.http.Close())
	<-d.failed
	require.ErrorIs(t, d.Stop(time.Second), net.ErrClosed)
}

func TestAdvertisedAddress(t *testing.T) {
	for _, x := range []struct{ advertise, listener, want string }{
		{"", "10.0.0.7:7070", "10.0.0.7:7070"}, {"be-7.search:7070", "[::]:7070", "be-7.search:7070"},
	} {
		got, err := advertisedAddress(x.advertise, x.listener)
		require.NoError(t, err)
		require.Equal(t, x.want, got)
	}
	got, err := advertisedAddress("", "[::]:7070")
	require.NoError(t, err)
	require.Regexp(t, `^[^:\[]+:7070$`, got)
}
