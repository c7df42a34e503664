// Package postgrestest runs a real PostgreSQL for tests.
package postgrestest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"docstore/internal/freeport"
	"docstore/internal/testprogram"
)

// Server is a cluster of PostgreSQL with wal_level = logical. It does not sync its files, which
// lasts until the machine stops.
type Server struct {
	Address string
	dir     string
	bin     string
	log     *os.File
	options []string
	server  *exec.Cmd
}

// binaries returns the directory of PostgreSQL's programs. Debian's are not in PATH.
func binaries(t testing.TB) string {
	if path, err := exec.LookPath("initdb"); err == nil {
		path, err = filepath.EvalSymlinks(path)
		require.NoError(t, err)
		return filepath.Dir(path)
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	require.NoError(t, err)
	require.NotEmpty(t, found, "PostgreSQL is not installed: run make setup")
	return slices.Max(found)
}

// Start starts a server that ends with the test. The options are settings, such as
// "wal_sender_timeout=1s".
func Start(t testing.TB, options ...string) *Server {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the server cannot be started without its privileges")
	}
	testprogram.Skip(t, "PostgreSQL")
	// Not t.TempDir: another user must be able to enter it.
	dir, err := os.MkdirTemp("", "postgrestest")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, giveAway(dir))
	s := &Server{Address: freeport.Address(t), dir: dir, bin: binaries(t)}
	s.log, err = os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.log.Close() })
	_, port, err := net.SplitHostPort(s.Address)
	require.NoError(t, err)
	for _, o := range append([]string{
		"listen_addresses=127.0.0.1", "port=" + port, "unix_socket_directories=" + dir,
		"fsync=off", "wal_level=logical", "max_wal_senders=50", "max_replication_slots=50",
	}, options...) {
		s.options = append(s.options, "-c", o)
	}
	output, err := s.command("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "--no-instructions").CombinedOutput()
	require.NoError(t, err, "%s", output)
	t.Cleanup(s.Kill)
	s.Restart(t)
	return s
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// command returns a command that runs without the privileges of root, as PostgreSQL wants.
func (s *Server) command(program string, arguments ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(s.bin, program), arguments...)
	c.Dir = s.dir
	dropPrivileges(c)
	return c
}

// Restart starts the server after Kill and waits until it accepts connections.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.server = s.command("postgres", append([]string{"-D", s.data()}, s.options...)...)
	s.server.Stdout, s.server.Stderr = s.log, s.log
	require.NoError(t, s.server.Start())
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		conn, err := pgconn.Connect(ctx, s.URL("postgres"))
		if err == nil {
			err = conn.Close(ctx)
		}
		cancel()
		if err == nil {
			return
		}
		if !time.Now().Before(deadline) {
			log, _ := os.ReadFile(s.log.Name())
			require.NoError(t, err, "%s", log)
		}
	}
}

// Kill shuts the server down at once, as with pg_ctl stop -m immediate.
func (s *Server) Kill() { s.stop(immediate) }

// Stop shuts the server down. It waits until the readers of slots have confirmed all changes.
func (s *Server) Stop() { s.stop(fast) }

// Snapshot copies the files of the stopped server. restore replaces the files of the server, which
// is stopped again, with the copy.
func (s *Server) Snapshot(t testing.TB) (restore func()) {
	t.Helper()
	copied := filepath.Join(s.dir, "snapshot")
	replace := func(from, to string) {
		require.NoError(t, os.RemoveAll(to))
		output, err := exec.Command("cp", "-a", from, to).CombinedOutput() // with the owners
		require.NoError(t, err, "%s", output)
	}
	replace(s.data(), copied)
	return func() { replace(copied, s.data()) }
}

// Promote restarts the server as a standby and makes it the primary of a new timeline.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	s.Kill()
	require.NoError(t, os.WriteFile(filepath.Join(s.data(), "standby.signal"), nil, 0o644))
	s.Restart(t)
	s.Exec(t, "postgres", "SELECT pg_promote()")
}

func (s *Server) stop(signal os.Signal) {
	if s.server != nil {
		_ = s.server.Process.Signal(signal) // it may have ended
		_ = s.server.Wait()
		s.server = nil
	}
}

// URL returns the URL of a database.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", s.Address, database)
}

// Exec runs statements in a database.
func (s *Server) Exec(t testing.TB, database, sql string) {
	t.Helper()
	require.NoError(t, s.TryExec(t.Context(), database, sql))
}

// TryExec runs statements in a database.
func (s *Server) TryExec(ctx context.Context, database, sql string) error {
	conn, err := pgconn.Connect(ctx, s.URL(database))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql).ReadAll()
	_ = conn.Close(ctx) // the statements have ended
	return err
}

// Query returns the rows of a statement as text.
func (s *Server) Query(t testing.TB, database, sql string) [][]string {
	t.Helper()
	conn, err := pgconn.Connect(t.Context(), s.URL(database))
	require.NoError(t, err)
	results, err := conn.Exec(t.Context(), sql).ReadAll()
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	var rows [][]string
	for _, row := range results[0].Rows {
		var texts []string
		for _, value := range row {
			texts = append(texts, string(value))
		}
		rows = append(rows, texts)
	}
	return rows
}
