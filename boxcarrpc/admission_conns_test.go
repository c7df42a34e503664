package boxcarrpc

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/virtualtime"
)

// dialAt connects from a loopback address.
func dialAt(from string) func(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return func(ctx context.Context, address string) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", address)
	}
}

// Clients that complete the TLS handshake and send nothing lock no other client out, and are
// not logged as faults.
func TestSilentConnectionsAreReplaced(t *testing.T) {
	certs := newTestTLS(t)
	s := serve(t, whoami, &ServerOptions{
		TLS: certs.server(t, tls.VerifyClientCertIfGiven), MaxConns: 2 * leastConns, HandshakeTimeout: time.Hour,
		Authenticate: (&keys{names: map[string]string{"open sesame": "ali"}}).authenticate,
	})
	config, err := certs.client(t, "")()
	require.NoError(t, err)
	config.ServerName = "localhost"
	silent := func(from string) *tls.Conn {
		conn, err := dialAt(from)(t.Context(), s.address)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return tls.Client(conn, config)
	}
	for i := range 3 * leastConns {
		conn := silent(fmt.Sprintf("127.0.0.%d", 2+i%8))
		if i%8 == 0 { // processor time
			_ = conn.HandshakeContext(t.Context()) // another one may have replaced it
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var pools []*Pool
	for i := range 20 {
		p := newPool(t, &PoolOptions{Size: 1, DialTimeout: time.Minute, TLS: certs.client(t, ""), Token: fixed("open sesame"), Dialer: dialAt("127.0.0.100")}, s.address)
		require.NoError(t, p.WaitReady(ctx))
		pools = append(pools, p)
		for range 8 {
			silent(fmt.Sprintf("127.0.0.%d", 2+i%8))
		}
	}
	for _, p := range pools {
		out, err := p.Call(t.Context(), "m", nil, nil)
		require.NoError(t, err)
		require.Equal(t, "ali", string(out))
	}
	require.LessOrEqual(t, s.Stats().Connections, leastConns+20)
	require.Zero(t, s.Stats().Faults)
}

// Silent connections of an address, at the limit of one client, do not lock out others behind
// the same address; identified ones do.
func TestSilentConnectionsOfAnAddressAreReplaced(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		l := newPipes()
		s := serveOn(t, l, echo, &ServerOptions{MaxConns: 8 * leastConns, HandshakeTimeout: time.Hour})
		dial := l.dialFrom("10.0.0.1")
		connect := func() *rawConn {
			conn, err := dial(t.Context(), "s")
			require.NoError(t, err)
			t.Cleanup(func() { conn.Close() })
			return newRaw(t, conn)
		}
		for range leastConns {
			connect()
		}
		for range leastConns {
			connect().hello()
		}
		require.Equal(t, leastConns, s.Stats().Connections)
		connect().ends()
		require.Equal(t, leastConns, s.Stats().Connections)
	})
}
