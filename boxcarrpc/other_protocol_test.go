package boxcarrpc

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/discovery"
)

// listenAs serves each connection with f until the test ends and returns the address.
func listenAs(t *testing.T, f func(net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			f(conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		<-done
	})
	return l.Addr().String()
}

// saying answers the first bytes of a connection with a text.
func saying(answer string) func(net.Conn) {
	return func(conn net.Conn) {
		if _, err := conn.Read(make([]byte, 1<<10)); err == nil {
			_, _ = io.WriteString(conn, answer)
		}
		_, _ = conn.Read(make([]byte, 1)) // until the client closes it
	}
}

// serveHTTP serves HTTP as docserviced does, over TLS if config is not nil.
func serveHTTP(t *testing.T, config *tls.Config) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	if config != nil {
		l = tls.NewListener(l, config)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	return address
}

// A pool detects at once that its server speaks another protocol, and names it.
func TestAServerOfAnotherProtocolIsNamed(t *testing.T) {
	certs := newTestTLS(t)
	overTLS, err := certs.server(t, tls.NoClientCert)()
	require.NoError(t, err)
	for name, c := range map[string]struct {
		address string
		tls     bool
		says    string
	}{
		"HTTP":                {serveHTTP(t, nil), false, `an HTTP server answered "HTTP/1.1 400 Bad Request"`},
		"HTTPS":               {serveHTTP(t, overTLS), true, `an HTTP server answered "HTTP/1.1 400 Bad Request"`},
		"HTTP, asked for TLS": {listenAs(t, saying("HTTP/1.1 400 Bad Request\r\n\r\n")), true, `an HTTP server answered "HTTP/"`},
		"gRPC":                {listenAs(t, saying("\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00")), false, "an HTTP/2 server, as of gRPC, answered"},
		"a TLS alert":         {listenAs(t, saying("\x15\x03\x01\x00\x02\x02\x46\x15\x03\x01\x00\x02\x02\x46\x15\x03")), false, "a TLS server answered with an alert"},
		"a text protocol":     {listenAs(t, saying("-ERR unknown command\r\n")), false, `the server answered "-ERR unknown command"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := &PoolOptions{DialTimeout: time.Minute}
			if c.tls {
				opts.TLS = certs.client(t, "")
			}
			p := newPoolOf(t, opts, discovery.Static(c.address))
			until(t, "the pool knows that no server speaks Boxcar", func() bool { return p.NoServerReason() != nil })
			for _, err := range []error{p.NoServerReason(), waitBriefly(t, p)} {
				require.ErrorIs(t, err, ErrNoServer)
				require.ErrorIs(t, err, ErrNotBoxcar)
				require.ErrorContains(t, err, c.address)
				require.ErrorContains(t, err, c.says)
			}
		})
	}
}

// waitBriefly returns the error of a short wait for a slot.
func waitBriefly(t *testing.T, p *Pool) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	return p.WaitReady(ctx)
}

// A server that closes connections or is silent may be a Boxcar server with a problem.
func TestSilentServerMayBeABoxcarServer(t *testing.T) {
	require.Contains(t, notReady(t, nil, listenAs(t, func(net.Conn) {})), "server closed the connection before its HELLO")
	silent := listenAs(t, saying(""))
	require.Contains(t, notReady(t, &PoolOptions{DialTimeout: 100 * time.Millisecond}, silent), "did not answer within 100ms")
}

// NoServerReason is nil while one server may still grant a slot.
func TestAPoolHasAReasonOnlyIfAllServersHave(t *testing.T) {
	other, draining, good := serveHTTP(t, nil), serve(t, echo, nil), serve(t, echo, nil)
	draining.Drain()
	p := newPoolOf(t, nil, discovery.Static(draining.address, other))
	until(t, "both servers have been dialled", func() bool { return p.NoServerReason() != nil })
	require.ErrorIs(t, p.NoServerReason(), ErrDraining)
	require.ErrorContains(t, p.NoServerReason(), draining.address)
	draining.Undrain()
	require.NoError(t, p.WaitReady(t.Context()))
	require.NoError(t, p.NoServerReason())

	p = newPoolOf(t, nil, discovery.Static(draining.address, good.address))
	draining.Drain()
	require.NoError(t, p.WaitReady(t.Context()))
	require.NoError(t, p.NoServerReason())
	require.NoError(t, newPoolOf(t, nil, discovery.Static()).NoServerReason())
}
