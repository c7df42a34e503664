package freeport

import (
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
	taken := Address(t)
	listener, err := net.Listen("tcp", taken)
	require.NoError(t, err)
	defer listener.Close()
	next.Add(-1)
	require.NotEqual(t, taken, Address(t))
}
