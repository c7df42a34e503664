// Package etcdtest runs a real etcd for tests.
package etcdtest

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/freeport"
	"docstore/internal/testprogram"
)

// keptRevisions is the number of revisions that etcd keeps, so that a long test does not fill
// the disk.
const keptRevisions = "10000"

// Server is an etcd with leases of at least one second.
type Server struct {
	Address   string
	program   string
	dir       string
	arguments []string
	command   *exec.Cmd
}

// Start starts an etcd that is killed at the end of the test.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartIn(t, filepath.Join(t.TempDir(), "etcd"))
}

// StartIn is Start with a data directory, which can have the data of an earlier etcd.
func StartIn(t testing.TB, dir string) *Server {
	t.Helper()
	program := testprogram.Path(t, "etcd")
	// The ports are most likely still free when etcd listens.
	address, peer := freeport.Address(t), freeport.Address(t)
	s := &Server{Address: address, program: program, dir: dir, arguments: []string{
		"--data-dir", dir, "--unsafe-no-fsync", "--log-level", "error",
		"--heartbeat-interval", "20", "--election-timeout", "200", // with the default the shortest lease is 2 s
		"--listen-client-urls", "http://" + address, "--advertise-client-urls", "http://" + address,
		"--listen-peer-urls", "http://" + peer, "--initial-advertise-peer-urls", "http://" + peer,
		"--initial-cluster", "default=http://" + peer,
		"--auto-compaction-mode", "revision", "--auto-compaction-retention", keptRevisions,
	}}
	t.Cleanup(s.Kill)
	s.Restart(t)
	return s
}

// Restart starts etcd after Kill, with its data, and waits until it is healthy.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.command = exec.Command(s.program, s.arguments...)
	require.NoError(t, s.command.Start())
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		response, err := client.Get("http://" + s.Address + "/health")
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
		}
		require.True(t, time.Now().Before(deadline), "etcd does not become healthy: %v", err)
	}
}

// PID returns the process id of etcd, which is running.
func (s *Server) PID() int { return s.command.Process.Pid }

// Kill kills etcd with SIGKILL.
func (s *Server) Kill() {
	if s.command != nil {
		_ = s.command.Process.Kill() // it may have ended
		_ = s.command.Wait()
		s.command = nil
	}
}

// Lose kills etcd, removes its data, and starts it again.
func (s *Server) Lose(t testing.TB) {
	t.Helper()
	s.Kill()
	require.NoError(t, os.RemoveAll(s.dir))
	s.Restart(t)
}
