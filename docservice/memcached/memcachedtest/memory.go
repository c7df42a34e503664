package memcachedtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Memory is a server in this process that keeps every value until it is deleted: it evicts
// nothing and ignores the time of expiry. It knows the commands of package memcached.
type Memory struct {
	Address string // of StartMemory

	mu struct {
		sync.Mutex
		values map[string][]byte // not modified later
	}
}

// NewMemory returns a server without values, which serves nothing yet.
func NewMemory() *Memory {
	m := new(Memory)
	m.mu.values = make(map[string][]byte)
	return m
}

// StartMemory runs a server until the test ends.
func StartMemory(t testing.TB) *Memory {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m := NewMemory()
	m.Address = listener.Addr().String()
	var running sync.WaitGroup
	running.Go(func() { _ = m.Serve(listener) }) // ends by Close
	t.Cleanup(func() {
		_ = listener.Close() // best effort
		running.Wait()
	})
	return m
}

// Serve answers the connections of a listener until it is closed or fails, and returns that
// error when their goroutines have ended. The values stay for another Serve.
func (m *Memory) Serve(listener net.Listener) error {
	var conns struct {
		sync.Mutex
		open map[net.Conn]bool
	}
	conns.open = make(map[net.Conn]bool)
	var running sync.WaitGroup
	for {
		conn, err := listener.Accept()
		if err != nil {
			conns.Lock()
			for conn := range conns.open {
				_ = conn.Close() // best effort
			}
			conns.Unlock()
			running.Wait()
			return err
		}
		conns.Lock()
		conns.open[conn] = true
		conns.Unlock()
		running.Go(func() {
			m.serve(conn)
			_ = conn.Close() // best effort
			conns.Lock()
			delete(conns.open, conn)
			conns.Unlock()
		})
	}
}

// serve answers the commands of a connection until it ends.
func (m *Memory) serve(conn net.Conn) {
	in, out := bufio.NewReader(conn), bufio.NewWriter(conn) // Flush returns the errors of out
	for {
		line, err := in.ReadString('\n')
		if err != nil || m.answer(strings.Fields(line), in, out) != nil || out.Flush() != nil {
			return
		}
	}
}

// answer answers one command, whose value follows in in. It holds no lock while it reads and
// writes: a client may be slow.
func (m *Memory) answer(command []string, in io.Reader, out io.Writer) error {
	switch {
	case len(command) >= 2 && command[0] == "gets":
		for _, key := range command[1:] {
			if value, ok := m.get(key); ok {
				_, _ = fmt.Fprintf(out, "VALUE %s 0 %d 0\r\n%s\r\n", key, len(value), value)
			}
		}
		_, _ = fmt.Fprint(out, "END\r\n")
	case len(command) == 5 && command[0] == "set":
		var bytes int
		if _, err := fmt.Sscan(command[4], &bytes); err != nil {
			return err
		}
		value := make([]byte, bytes+len("\r\n"))
		if _, err := io.ReadFull(in, value); err != nil {
			return err
		}
		m.set(command[1], value[:bytes])
		_, _ = fmt.Fprint(out, "STORED\r\n")
	case len(command) == 2 && command[0] == "delete":
		if !m.remove(command[1]) {
			_, _ = fmt.Fprint(out, "NOT_FOUND\r\n")
			break
		}
		_, _ = fmt.Fprint(out, "DELETED\r\n")
	case len(command) == 1 && command[0] == "version":
		_, _ = fmt.Fprint(out, "VERSION 0\r\n")
	default:
		_, _ = fmt.Fprint(out, "ERROR\r\n")
	}
	return nil
}

func (m *Memory) get(key string) (value []byte, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok = m.mu.values[key]
	return value, ok
}

func (m *Memory) set(key string, value []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.values[key] = value
}

func (m *Memory) remove(key string) (ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok = m.mu.values[key]
	delete(m.mu.values, key)
	return ok
}
