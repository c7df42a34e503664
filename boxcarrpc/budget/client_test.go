package budget

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// nameless is the address of a pipe.
type nameless struct{}

func (nameless) Network() string { return "pipe" }
func (nameless) String() string  { return "pipe" }

func TestClientsAreDistinguishedByNetwork(t *testing.T) {
	at := func(address string) Client {
		tcp, err := net.ResolveTCPAddr("tcp", address)
		require.NoError(t, err)
		return ClientAt(tcp)
	}
	require.Equal(t, at("10.0.0.1:7"), at("10.0.0.1:8"))
	require.Equal(t, at("10.0.0.1:7"), at("[::ffff:10.0.0.1]:7"))
	require.NotEqual(t, at("10.0.0.1:7"), at("10.0.0.2:7"))
	require.Equal(t, at("[2001:db8::1]:7"), at("[2001:db8::ffff:1]:7"))
	require.NotEqual(t, at("[2001:db8::1]:7"), at("[2001:db8:0:1::1]:7"))
	require.Equal(t, ClientAt(&net.UnixAddr{Name: "@"}), ClientAt(nameless{}))
}
