package listen

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestListenFamilies: the wildcard of IPv4 does not accept IPv6 connections.
func TestListenFamilies(t *testing.T) {
	if probe, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skip("this machine has no IPv6: ", err)
	} else {
		require.NoError(t, probe.Close())
	}
	for _, test := range []struct {
		host       string
		ipv4, ipv6 bool
	}{
		{"0.0.0.0", true, false},
		{"127.0.0.1", true, false},
		{"[::ffff:0.0.0.0]", true, false},
		{"", true, true},
		{"[::]", true, true},
		{"[::1]", false, true},
	} {
		t.Run(test.host, func(t *testing.T) {
			listener, err := TCP("--http", test.host+":0")
			require.NoError(t, err)
			defer listener.Close()
			_, port, err := net.SplitHostPort(listener.Addr().String())
			require.NoError(t, err)
			require.Equal(t, test.ipv4, accepts(listener, "127.0.0.1", port))
			require.Equal(t, test.ipv6, accepts(listener, "::1", port))
		})
	}
}

// accepts reports whether a connection to the host reaches the listener.
func accepts(listener net.Listener, host, port string) bool {
	client, err := net.Dial("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return false
	}
	defer client.Close()
	server, err := listener.Accept()
	if err != nil {
		return false
	}
	defer server.Close()
	return server.RemoteAddr().String() == client.LocalAddr().String()
}
