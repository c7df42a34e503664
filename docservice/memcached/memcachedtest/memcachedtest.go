// Package memcachedtest runs the real memcached, or a small one in the process, for tests.
package memcachedtest

import (
	"net"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/testprogram"
)

// Server is a memcached process.
type Server struct {
	Address string // the same after a restart

	t       testing.TB
	program string
	args    []string
	command *exec.Cmd
}

// Start runs a server, with further arguments if any, until the test ends. It skips the
// test with -short.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	program := testprogram.Path(t, "memcached")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &Server{Address: listener.Addr().String(), t: t, program: program, args: args}
	require.NoError(t, listener.Close())
	s.Restart()
	t.Cleanup(s.Kill)
	return s
}

// Restart runs the server again after Kill. It returns when it listens.
func (s *Server) Restart() {
	s.t.Helper()
	host, port, err := net.SplitHostPort(s.Address)
	require.NoError(s.t, err)
	s.command = exec.Command(s.program, append([]string{"-u", "nobody", "-l", host, "-p", port, "-U", "0"}, s.args...)...)
	require.NoError(s.t, s.command.Start())
	require.Eventually(s.t, func() bool {
		conn, err := net.Dial("tcp", s.Address)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}, time.Minute, time.Millisecond, "memcached does not listen on %s", s.Address)
}

// Kill ends the process at once and returns when it has ended.
func (s *Server) Kill() {
	if s.command == nil {
		return
	}
	require.NoError(s.t, s.command.Process.Kill())
	_ = s.command.Wait() // reports the kill
	s.command = nil
}

// Signal sends a signal.
func (s *Server) Signal(signal syscall.Signal) {
	s.t.Helper()
	require.NoError(s.t, s.command.Process.Signal(signal))
}
