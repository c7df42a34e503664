// Package natstest runs a real NATS server with JetStream for tests.
package natstest

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/freeport"
	"docstore/internal/testprogram"
)

// program is built by make setup; scripts/setup has the same version.
const program = "nats-server-v2.15.2"

// Server is a NATS server that keeps its streams in files.
type Server struct {
	Address string // HOST:PORT, the same after a restart

	t       testing.TB
	program string
	config  string
	streams string // the directory of JetStream
	command *exec.Cmd
}

// Start runs a server, with further lines of its configuration file if any, until the test
// ends. It skips the test with -short.
func Start(t testing.TB, lines ...string) *Server {
	t.Helper()
	s := &Server{Address: freeport.Address(t), t: t, program: testprogram.Path(t, program)}
	dir := t.TempDir()
	s.config = filepath.Join(dir, "nats.conf")
	s.streams = filepath.Join(dir, "streams")
	lines = append(lines, "listen: "+s.Address, "jetstream { store_dir: "+s.streams+" }")
	require.NoError(t, os.WriteFile(s.config, []byte(strings.Join(lines, "\n")), 0o600))
	t.Cleanup(s.Stop)
	s.Restart()
	return s
}

// URL returns the address as a URL.
func (s *Server) URL() string { return "nats://" + s.Address }

// Process returns the running process.
func (s *Server) Process() *os.Process { return s.command.Process }

// Restart runs the server again after Stop, with its streams. It returns when JetStream is
// ready.
func (s *Server) Restart() {
	s.t.Helper()
	s.command = exec.Command(s.program, "--config", s.config, "--log", s.config+".log")
	require.NoError(s.t, s.command.Start())
	require.Eventually(s.t, s.listens, time.Minute, time.Millisecond, "%s does not listen on %s", program, s.Address)
}

// Snapshot copies the streams of the stopped server. restore replaces those of the server, which is
// stopped again, with the copy.
func (s *Server) Snapshot() (restore func()) {
	s.t.Helper()
	copied := s.streams + "-snapshot"
	replace := func(from, to string) {
		require.NoError(s.t, os.RemoveAll(to))
		require.NoError(s.t, os.CopyFS(to, os.DirFS(from)))
	}
	replace(s.streams, copied)
	return func() { replace(copied, s.streams) }
}

// listens reports whether the server accepts connections, which it does when JetStream is ready.
func (s *Server) listens() bool {
	conn, err := net.Dial("tcp", s.Address)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// Stop ends the server and returns when it has ended.
func (s *Server) Stop() {
	if s.command == nil {
		return
	}
	require.NoError(s.t, s.command.Process.Signal(os.Interrupt))
	_ = s.command.Wait() // its status is that of the interrupt
	s.command = nil
}
