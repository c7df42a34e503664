package grpcserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"docstore/docservice/docservicegrpc"
	"docstore/docservice/docservicepb"
	"docstore/internal/servertest"
	"docstore/internal/testcert"
)

// A secured is a daemon that serves gRPC and HTTP to clients with a certificate or a token,
// and the files of its credentials.
type secured struct {
	*testServer
	dir string
	ca  *testcert.CA
}

func startSecured(t *testing.T, age time.Duration) *secured {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	s := &secured{dir: t.TempDir(), ca: testcert.NewCA(t, "CA")}
	o := testOptions(t, queueDir)
	o.grpc, o.HTTP.Address, o.HTTP.LookUp, o.Limits.ConnAge = "127.0.0.1:0", "0.0.0.0:0", true, age
	o.Security.Certificate, o.Security.Key = s.ca.Files(t, s.dir, "server")
	o.Security.ClientCA = s.ca.File(t, s.dir, "clients")
	o.Security.TokenFile = testcert.Write(t, s.dir, "tokens", []byte("frontend "+testToken))
	s.testServer, _ = startTestDaemon(t, o)
	waitReady(t, s.testServer)
	return s
}

// clientTLS returns the configuration of a client, with a certificate if certified is set.
func (s *secured) clientTLS(t *testing.T, certified bool) *tls.Config {
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}
	config.RootCAs.AddCert(s.ca.Certificate)
	if certified {
		pair, err := tls.LoadX509KeyPair(s.ca.Files(t, s.dir, "client"))
		require.NoError(t, err)
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

func (s *secured) dial(t *testing.T, certified bool) *grpc.ClientConn {
	conn, err := grpc.NewClient(s.grpc.Address(), grpc.WithTransportCredentials(grpccredentials.NewTLS(s.clientTLS(t, certified))))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// get requests a path over HTTP, with the token if client has no certificate.
func (s *secured) get(ctx context.Context, t *testing.T, client *http.Client, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+strings.Replace(s.HTTPAddress(), "0.0.0.0", "127.0.0.1", 1)+path, nil)
	require.NoError(t, err)
	if len(client.Transport.(*http.Transport).TLSClientConfig.Certificates) == 0 {
		request.Header.Set("Authorization", "Bearer "+testToken)
	}
	return client.Do(request)
}

func httpClient(t *testing.T, config *tls.Config, http2 bool) *http.Client {
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: http2}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func getOverGRPC(ctx context.Context, conn *grpc.ClientConn, options ...grpc.CallOption) error {
	_, err := docservicegrpc.NewDocumentsClient(conn).Get(ctx, &docservicepb.GetRequest{Collection: "jobs", Id: []byte("a")}, options...)
	return err
}

// Open streams and connections over gRPC and HTTP outlived the token and the authority of
// their client.
func TestRefusedClientsAreDisconnected(t *testing.T) {
	s := startSecured(t, 0)
	ctx := servertest.Shortly(t)
	ended := make(chan error, 4)
	var conns []*grpc.ClientConn
	for _, certified := range []bool{true, false} {
		conn, calls := s.dial(t, certified), ctx
		conns = append(conns, conn)
		if !certified {
			calls = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+testToken)
		}
		require.NoError(t, getOverGRPC(calls, conn))
		watch, err := grpc_health_v1.NewHealthClient(conn).Watch(calls, new(grpc_health_v1.HealthCheckRequest))
		require.NoError(t, err)
		_, err = watch.Recv()
		require.NoError(t, err)
		go func() {
			_, err := watch.Recv()
			ended <- err
		}()
		client := httpClient(t, s.clientTLS(t, certified), true)
		live, err := s.get(ctx, t, client, "/live")
		require.NoError(t, err)
		t.Cleanup(func() { live.Body.Close() })
		require.Equal(t, http.StatusOK, live.StatusCode)
		_, err = bufio.NewReader(live.Body).ReadString('\n')
		require.NoError(t, err)
		go func() {
			_, _ = io.Copy(io.Discard, live.Body) // an error, or the end
			ended <- status.Error(codes.Unavailable, "/live has ended")
		}()
	}
	testcert.NewCA(t, "other").File(t, s.dir, "clients")
	testcert.Write(t, s.dir, "tokens", []byte("frontend another-token-5f0c9d3be1a9"))
	for range cap(ended) {
		select {
		case err := <-ended:
			require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
		case <-ctx.Done():
			t.Fatal("a stream has not ended")
		}
	}
	require.Error(t, getOverGRPC(ctx, conns[0]))
	require.Equal(t, codes.Unauthenticated, status.Code(getOverGRPC(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+testToken), conns[1])))
}

// An idle connection of a client whose authority was removed is closed.
func TestIdleConnectionsOfRefusedClientsAreClosed(t *testing.T) {
	s := startSecured(t, 0)
	ctx := servertest.Shortly(t)
	conn, err := tls.Dial("tcp", strings.Replace(s.HTTPAddress(), "0.0.0.0", "127.0.0.1", 1), s.clientTLS(t, true))
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	testcert.NewCA(t, "other").File(t, s.dir, "clients")
	deadline, _ := ctx.Deadline() // earlier than the limit for idle connections
	require.NoError(t, conn.SetReadDeadline(deadline))
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

// Clients of connections that have reached their maximum age connect again, and none of
// their requests fails.
func TestConnectionsHaveAMaximumAge(t *testing.T) {
	s := startSecured(t, time.Second)
	ctx := servertest.Shortly(t)
	t.Run("gRPC", func(t *testing.T) {
		conn := s.dial(t, true)
		seen := map[string]bool{}
		for len(seen) < 3 {
			var p peer.Peer
			require.NoError(t, getOverGRPC(ctx, conn, grpc.Peer(&p)))
			seen[p.LocalAddr.String()] = true
		}
	})
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			client := httpClient(t, s.clientTLS(t, true), http2)
			live, err := s.get(ctx, t, client, "/live")
			require.NoError(t, err)
			defer live.Body.Close()
			require.Equal(t, http2, live.ProtoMajor == 2)
			seen := map[string]bool{}
			for len(seen) < 3 {
				traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
					GotConn: func(got httptrace.GotConnInfo) { seen[got.Conn.LocalAddr().String()] = true },
				})
				answer, err := s.get(traced, t, client, "/documents/jobs/a")
				require.NoError(t, err)
				document, err := io.ReadAll(answer.Body)
				require.NoError(t, err)
				require.NoError(t, answer.Body.Close())
				require.Equal(t, `{"id":"a"}`, string(document))
			}
			_, err = io.Copy(io.Discard, live.Body)
			require.NoError(t, err, "it ends in order")
		})
	}
}
