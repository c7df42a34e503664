package etcdmap

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice/placement"
	"docstore/internal/servertest"
)

// TestOutageIsLoggedOnce: the log had a line for each of the attempts, three a second, to read the
// placement and to report the state while etcd was away.
func TestOutageIsLoggedOnce(t *testing.T) {
	var log servertest.Buffer
	var attempts atomic.Int64
	s, err := Open("127.0.0.1:1", "jobs", &Options{
		Timeout: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Dial: func(context.Context, string, string) (net.Conn, error) {
			attempts.Add(1)
			return nil, errors.New("refused")
		},
	})
	require.NoError(t, err)
	reporter := s.Report(placement.ServerState{Column: "a"})
	time.Sleep(3 * readAgain)
	require.NoError(t, reporter.Close())
	require.NoError(t, s.Close())
	require.Equal(t, 1, strings.Count(log.String(), `msg="etcd (placement) does not answer, or refuses; retrying" collection=jobs error=`), log.String())
	require.Equal(t, 1, strings.Count(log.String(), `msg="etcd (state of this server) does not answer, or refuses; retrying" collection=jobs error=`), log.String())
	require.Equal(t, 2, strings.Count(log.String(), "\n"), log.String())
}
