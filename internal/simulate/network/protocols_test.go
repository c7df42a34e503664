package network_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/internal/simulate/network"
	"docstore/internal/testcert"
	"docstore/internal/virtualtime"
)

// protocolTest is a server and a client. Their TLS configurations are nil for plain text.
type protocolTest struct {
	*testing.T
	l                    net.Listener
	client               *network.Process
	serverTLS, clientTLS *tls.Config
}

// Protocols work in plain text and over TLS, and leave no goroutine.
func TestProtocols(t *testing.T) {
	for name, test := range map[string]func(protocolTest){"HTTP": testHTTP, "Boxcar": testBoxcar, "gRPC": testGRPC} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/TLS=%v", name, secure), func(t *testing.T) {
				virtualtime.Test(t, func(t *testing.T) {
					_, _, client, l := pair(t)
					p := protocolTest{T: t, l: l, client: client}
					if secure {
						p.serverTLS, p.clientTLS = certified(t)
					}
					test(p)
					time.Sleep(time.Second) // goroutines that still read see the end
				})
			})
		}
	}
}

// certified returns configurations for TLS. The certificates are valid in virtual time.
func certified(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	ca := testcert.NewCA(t, "authority")
	certificate, key := ca.Issue(t, "server", time.Now().Add(time.Hour))
	pair, err := tls.X509KeyPair(certificate, key)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate)
	return &tls.Config{Certificates: []tls.Certificate{pair}}, &tls.Config{RootCAs: roots, ServerName: "server"}
}

func testHTTP(t protocolTest) {
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto, r.URL.Path) })}
	url, want := "http://"+address, "HTTP/1.1/x"
	serve := func() error { return server.Serve(t.l) }
	if t.serverTLS != nil {
		server.TLSConfig = t.serverTLS
		url, want = "https://"+address, "HTTP/2.0/x"
		serve = func() error { return server.ServeTLS(t.l, "", "") }
	}
	served := make(chan error, 1)
	go func() { served <- serve() }()
	transport := &http.Transport{DialContext: t.client.Dial, TLSClientConfig: t.clientTLS, ForceAttemptHTTP2: true}
	for range 10 {
		response, err := (&http.Client{Transport: transport}).Get(url + "/x")
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, want, string(body))
	}
	transport.CloseIdleConnections()
	require.NoError(t, server.Close())
	require.ErrorIs(t, <-served, http.ErrServerClosed)
}

func testBoxcar(t protocolTest) {
	tlsSource := func(config *tls.Config) func() (*tls.Config, error) {
		if config == nil {
			return nil
		}
		return func() (*tls.Config, error) { return config, nil }
	}
	server := boxcarrpc.NewServer(func(_ context.Context, _ string, request, dst []byte) ([]byte, error) {
		return append(dst, request...), nil
	}, &boxcarrpc.ServerOptions{Insecure: t.serverTLS == nil, TLS: tlsSource(t.serverTLS)})
	served := make(chan error, 1)
	go func() { served <- server.Serve(t.l) }()
	pool, err := boxcarrpc.NewPool(discovery.Static(address), &boxcarrpc.PoolOptions{
		Insecure: t.clientTLS == nil, TLS: tlsSource(t.clientTLS),
		Dialer: func(ctx context.Context, address string) (net.Conn, error) { return t.client.Dial(ctx, "tcp", address) },
	})
	require.NoError(t, err)
	for range 100 {
		answer, err := pool.Call(t.Context(), "m", []byte("hello"), nil)
		require.NoError(t, err)
		require.Equal(t, "hello", string(answer))
	}
	require.NoError(t, pool.Close())
	require.NoError(t, server.Close())
	require.ErrorIs(t, <-served, boxcarrpc.ErrServerClosed)
}

func testGRPC(t protocolTest) {
	serverCredentials, clientCredentials := insecure.NewCredentials(), insecure.NewCredentials()
	if t.serverTLS != nil {
		serverCredentials, clientCredentials = credentials.NewTLS(t.serverTLS), credentials.NewTLS(t.clientTLS)
	}
	server := grpc.NewServer(grpc.Creds(serverCredentials))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- server.Serve(t.l) }()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(clientCredentials),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return t.client.Dial(ctx, "tcp", address) }))
	require.NoError(t, err)
	for range 100 {
		answer, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		require.NoError(t, err)
		require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, answer.GetStatus())
	}
	require.NoError(t, conn.Close())
	server.Stop()
	require.NoError(t, <-served)
}

// A TLS handshake with a host that accepts and does not answer ends with its context.
func TestTLSHandshakeWithSilentHost(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		n, _, client, l := pair(t)
		serverTLS, clientTLS := certified(t)
		end := n.Host("10.0.0.1", "a").Silence()
		near, far := connect(t, client, l)
		failed := make(chan error, 1)
		go func() { failed <- tls.Server(far, serverTLS).HandshakeContext(t.Context()) }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, tls.Client(near, clientTLS).HandshakeContext(ctx), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		require.NoError(t, near.Close())
		end()
		require.ErrorIs(t, <-failed, io.EOF, "the first message and the end arrive after the outage")
	})
}
