package freeport

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAddressesAreFreeAndDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		address := Address(t)
		require.False(t, seen[address], address)
		seen[address] = true
		listener, err := net.Listen("tcp", address)
		require.NoError(t, err)
		defer listener.Close()
	}
}

func TestPortInUseIsSkipped(t *testing.T) {
	port := first + (next.Load()+1)%count
	taken := fmt.Sprintf("127.0.0.1:%d", port)
	if listener, err := net.Listen("tcp", taken); err == nil { // or another process uses it
		defer listener.Close()
	}
	require.NotEqual(t, taken, Address(t))
}

func TestReservedPortIsSkipped(t *testing.T) {
	taken := Address(t)
	next.Add(-1)
	require.NotEqual(t, taken, Address(t))
}
