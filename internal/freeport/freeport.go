// Package freeport gives tests addresses for the servers that they start as processes.
package freeport

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
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

func init() { next.Store(int64(os.Getpid() % 1000 * 11)) }

// Address returns a loopback address with a free port that this process has not returned
// before, if there is one.
func Address(t testing.TB) string {
	t.Helper()
	for range count {
		address := fmt.Sprintf("127.0.0.1:%d", first+next.Add(1)%count)
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
