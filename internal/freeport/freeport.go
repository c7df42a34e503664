// Package freeport gives tests addresses for the servers that they start as processes.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// Ports below the ephemeral range, so that no outgoing connection takes one before or after
// a server uses it.
const (
	first = 20_000
	count = 12_000
)

// next is the next port to try. Concurrent test processes start at different ports.
var next atomic.Int64

// reserved holds the reservations of ports until the process exits: see Address.
var reserved struct {
	sync.Mutex
	ports []net.PacketConn
}

func init() { next.Store(rand.Int64N(count)) }

// reserve reports whether no other test process has reserved the port: an address that no
// server of a test uses stands for it.
func reserve(port int64) bool {
	conn, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.2:%d", port))
	if err != nil {
		return !errors.Is(err, syscall.EADDRINUSE)
	}
	reserved.Lock()
	defer reserved.Unlock()
	reserved.ports = append(reserved.ports, conn)
	return true
}

// Address returns a loopback address with a free port that neither this process has returned
// before nor, where 127.0.0.2 is a loopback address, another running test process.
func Address(t testing.TB) string {
	t.Helper()
	for range count {
		port := first + next.Add(1)%count
		if !reserve(port) {
			continue
		}
		address := fmt.Sprintf("127.0.0.1:%d", port)
		if listener, err := net.Listen("tcp", address); err == nil {
			if err := listener.Close(); err != nil {
				t.Fatal(err)
			}
			return address
		}
	}
	t.Fatal("all ports are in use")
	return ""
}
