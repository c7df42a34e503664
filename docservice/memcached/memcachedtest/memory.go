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
	Address string

	mu struct {
		sync.Mutex
		values map[string][]byte
		conns  map[net.Conn]bool // nil: closed
	}
}

// StartMemory runs a server until the test ends.
func StartMemory(t testing.TB) *Memory {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m := &Memory{Address: listener.Addr().String()}
	m.mu.values, m.mu.conns = make(map[string][]byte), make(map[net.Conn]bool)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			m.mu.Lock()
			closed := m.mu.conns == nil
			if !closed {
				m.mu.conns[conn] = true
			}
			m.mu.Unlock()
			if closed {
				_ = conn.Close() // best effort
				return
			}
			running.Go(func() { m.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close() // best effort
		m.mu.Lock()
		for conn := range m.mu.conns {
			_ = conn.Close() // best effort
		}
		m.mu.conns = nil
		m.mu.Unlock()
		running.Wait()
	})
	return m
}

// serve answers the commands of a connection until it ends.
func (m *Memory) serve(conn net.Conn) {
	defer func() {
		_ = conn.Close() // best effort
		m.mu.Lock()
		delete(m.mu.conns, conn)
		m.mu.Unlock()
	}()
	in, out := bufio.NewReader(conn), bufio.NewWriter(conn) // Flush returns the errors of out
	for {
		line, err := in.ReadString('\n')
		if err != nil || m.answer(strings.Fields(line), in, out) != nil || out.Flush() != nil {
			return
		}
	}
}

// answer answers one command, whose value follows in in.
func (m *Memory) answer(command []string, in io.Reader, out io.Writer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case len(command) >= 2 && command[0] == "gets":
		for _, key := range command[1:] {
			if value, there := m.mu.values[key]; there {
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
		m.mu.values[command[1]] = value[:bytes]
		_, _ = fmt.Fprint(out, "STORED\r\n")
	case len(command) == 2 && command[0] == "delete":
		if _, there := m.mu.values[command[1]]; !there {
			_, _ = fmt.Fprint(out, "NOT_FOUND\r\n")
			break
		}
		delete(m.mu.values, command[1])
		_, _ = fmt.Fprint(out, "DELETED\r\n")
	case len(command) == 1 && command[0] == "version":
		_, _ = fmt.Fprint(out, "VERSION 0\r\n")
	default:
		_, _ = fmt.Fprint(out, "ERROR\r\n")
	}
	return nil
}
