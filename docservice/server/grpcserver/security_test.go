package grpcserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/credentials"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
	"docstore/docservice/docservicegrpc"
	"docstore/docservice/docservicepb"
	"docstore/internal/servertest"
	"docstore/internal/testcert"
)

const testToken = "5f0c9d3be1a94f0fb1f7c0a1"

// All listeners of a daemon that requires TLS and a certificate or token.
func TestDaemonRequiresCredentials(t *testing.T) {
	queueDir, dir := t.TempDir(), t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	ca := testcert.NewCA(t, "CA")
	o := testOptions(t, queueDir)
	o.grpc = "127.0.0.1:0"
	o.Security.Certificate, o.Security.Key = ca.Files(t, dir, "server")
	o.Security.ClientCA = ca.File(t, dir, "ca")
	o.Security.Operators = []string{"frontend"}
	o.Security.TokenFile = testcert.Write(t, dir, "tokens", []byte("frontend "+testToken))
	d, log := startTestDaemon(t, o)
	waitReady(t, d)
	certificate, key := ca.Files(t, dir, "client")
	for name, files := range map[string]credentials.Files{
		"certificate": {CA: o.Security.ClientCA, Certificate: certificate, Key: key},
		"token":       {CA: o.Security.ClientCA},
		"nothing":     {CA: o.Security.ClientCA},
	} {
		config, err := credentials.ClientTLS(files, nil)
		require.NoError(t, err)
		options := &boxcarrpc.PoolOptions{TLS: config}
		if name == "token" {
			options.Token = func() (string, error) { return testToken, nil }
		}
		pool, err := boxcarrpc.NewPool(discovery.Static(d.BoxcarAddress()), options)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(servertest.Shortly(t))
		if name == "nothing" {
			servertest.Until(t.Context(), func() bool { return d.Boxcar().Stats().Faults > 0 })
			cancel()
			require.ErrorIs(t, pool.WaitReady(ctx), boxcarrpc.ErrNoServer)
		} else {
			document, err := docservice.NewClient(pool, "jobs").Get(ctx, nil, "a")
			require.NoError(t, err, name)
			require.Equal(t, `{"id":"a"}`, string(document))
		}
		cancel()
		require.NoError(t, pool.Close())
	}
	require.NotContains(t, log.String(), testToken)
	testGRPCProof(t, d, ca, certificate, key)
}

// Where a certificate is required, every client can ask for the health over gRPC, and nothing
// else.
func TestGRPCHealthNeedsNoCertificate(t *testing.T) {
	queueDir, dir := t.TempDir(), t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	ca := testcert.NewCA(t, "CA")
	o := testOptions(t, queueDir)
	o.grpc = "127.0.0.1:0"
	o.Security.Certificate, o.Security.Key = ca.Files(t, dir, "server")
	o.Security.ClientCA = ca.File(t, dir, "ca")
	d, _ := startTestDaemon(t, o)
	waitReady(t, d)
	pair, err := tls.LoadX509KeyPair(ca.Files(t, dir, "client"))
	require.NoError(t, err)
	bare := dialWithTLS(t, d, ca)
	health := grpc_health_v1.NewHealthClient(bare)
	answer, err := health.Check(servertest.Shortly(t), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, answer.GetStatus())
	watch, err := health.Watch(servertest.Shortly(t), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	answer, err = watch.Recv()
	require.NoError(t, err)
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, answer.GetStatus())

	for conn, want := range map[*grpc.ClientConn]codes.Code{bare: codes.Unauthenticated, dialWithTLS(t, d, ca, pair): codes.OK} {
		_, err = docservicegrpc.NewDocumentsClient(conn).Get(servertest.Shortly(t), &docservicepb.GetRequest{Collection: "jobs", Id: []byte("a")})
		require.Equal(t, want, status.Code(err))
		services, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(servertest.Shortly(t))
		require.NoError(t, err)
		err = services.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
		if !errors.Is(err, io.EOF) { // the server has refused the stream already; Recv returns why
			require.NoError(t, err)
		}
		_, err = services.Recv()
		require.Equal(t, want, status.Code(err))
	}
}

// dialWithTLS connects with these certificates.
func dialWithTLS(t *testing.T, d *testServer, ca *testcert.CA, pairs ...tls.Certificate) *grpc.ClientConn {
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate)
	conn, err := grpc.NewClient(d.grpc.Address(), grpc.WithTransportCredentials(grpccredentials.NewTLS(
		&tls.Config{RootCAs: roots, Certificates: pairs, MinVersion: tls.VersionTLS13})))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func testGRPCProof(t *testing.T, d *testServer, ca *testcert.CA, certificate, key string) {
	ask := func(conn *grpc.ClientConn, token string) codes.Code {
		ctx := servertest.Shortly(t)
		if token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "BEARER "+token)
		}
		_, err := docservicegrpc.NewDocumentsClient(conn).Get(ctx, &docservicepb.GetRequest{Collection: "jobs", Id: []byte("a")})
		return status.Code(err)
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	require.NoError(t, err)
	bare := dialWithTLS(t, d, ca)
	require.Equal(t, codes.OK, ask(dialWithTLS(t, d, ca, pair), ""))
	require.Equal(t, codes.OK, ask(bare, testToken))
	require.Equal(t, codes.Unauthenticated, ask(bare, ""))
	require.Equal(t, codes.Unauthenticated, ask(bare, testToken+"x"))
	require.Equal(t, codes.Unauthenticated, ask(dialWithTLS(t, d, ca, pair), testToken+"x"))
	health, err := grpc_health_v1.NewHealthClient(bare).Check(servertest.Shortly(t), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, health.GetStatus())
	watch, err := docservicegrpc.NewDocumentsClient(bare).Stats(servertest.Shortly(t), &docservicepb.StatsRequest{})
	require.Equal(t, codes.Unauthenticated, status.Code(err))
	require.Nil(t, watch)
}
