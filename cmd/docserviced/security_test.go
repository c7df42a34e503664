package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
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
	"docstore/cmd/internal/cli"
	"docstore/docservice"
	"docstore/docservice/docservicegrpc"
	"docstore/docservice/docservicepb"
	"docstore/docservice/server"
	"docstore/internal/servertest"
	"docstore/internal/testcert"
)

const testToken = "5f0c9d3be1a94f0fb1f7c0a1"

func TestConflictingSecurityFlags(t *testing.T) {
	dir, queueDir := t.TempDir(), t.TempDir()
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--tls-cert and --tls-key go together", []string{"--tls-cert", "a"}},
		{"--tls-cert and --tls-key go together", []string{"--tls-key", "a"}},
		{"--tls-client-ca needs --tls-cert and --tls-key", []string{"--tls-client-ca", "a"}},
		{"--insecure contradicts --tls-cert and --token-file", []string{"--insecure", "--tls-cert", "a", "--tls-key", "b"}},
		{"--insecure contradicts --tls-cert and --token-file", []string{"--insecure", "--token-file", "a"}},
		{"--boxcar :7070 would serve other hosts in plain text; give --tls-cert and --tls-key, or --insecure if this is intended", []string{"--boxcar", ":7070"}},
		{"--boxcar 10.0.0.1:7070 would serve other hosts in plain text", []string{"--boxcar", "10.0.0.1:7070"}},
		{"--grpc :7072 would serve other hosts in plain text", []string{"--grpc", ":7072"}},
		{"--boxcar :7070 would serve other hosts without authentication; give --tls-client-ca or --token-file, or --insecure-anonymous if this is intended", []string{"--boxcar", ":7070", "--tls-cert", "a", "--tls-key", "b"}},
		{"--grpc :7072 would serve other hosts without authentication", []string{"--grpc", ":7072", "--tls-cert", "a", "--tls-key", "b"}},
		{"--boxcar :7070 would receive tokens in plain text; give --tls-cert and --tls-key", []string{"--boxcar", ":7070", "--token-file", "a"}},
	} {
		r := run(t.Context(), append([]string{"serve", "--data", dir, "--collection", "jobs=" + queueDir}, c.args...)...)
		require.Equal(t, cli.ExitUsage, r.status, c.args)
		require.Contains(t, r.stderr, c.want)
	}
	r := run(t.Context(), "serve", "--data", dir, "--collection", "jobs="+queueDir, "--token-file", filepath.Join(dir, "none"))
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stderr, "no such file")
	require.ErrorContains(t, (&server.Security{Operators: []string{"baba"}}).Check("localhost:7070", ""), "--operators needs")
	require.NoError(t, (&server.Security{Operators: []string{"baba"}, TokenFile: "c"}).Check("localhost:7070", ""))
	require.NoError(t, (&server.Security{Insecure: true}).Check(":7070", ":7072"))
	require.NoError(t, (&server.Security{Certificate: "a", Key: "b", TokenFile: "c"}).Check(":7070", ":7072"))
	require.NoError(t, (&server.Security{TokenFile: "c"}).Check("localhost:7070", "[::1]:7072"))
	require.NoError(t, (&server.Security{Certificate: "a", Key: "b", InsecureAnonymous: true}).Check(":7070", ":7072"))
	require.NoError(t, (&server.Security{Certificate: "a", Key: "b"}).Check("localhost:7070", "[::1]:7072"))
}

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
		ctx, cancel := context.WithCancel(shortly(t))
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
	answer, err := health.Check(shortly(t), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, answer.GetStatus())
	watch, err := health.Watch(shortly(t), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	answer, err = watch.Recv()
	require.NoError(t, err)
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, answer.GetStatus())

	for conn, want := range map[*grpc.ClientConn]codes.Code{bare: codes.Unauthenticated, dialWithTLS(t, d, ca, pair): codes.OK} {
		_, err = docservicegrpc.NewDocumentsClient(conn).Get(shortly(t), &docservicepb.GetRequest{Collection: "jobs", Id: []byte("a")})
		require.Equal(t, want, status.Code(err))
		services, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(shortly(t))
		require.NoError(t, err)
		require.NoError(t, services.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}))
		_, err = services.Recv()
		require.Equal(t, want, status.Code(err))
	}
}

// dialWithTLS connects with these certificates.
func dialWithTLS(t *testing.T, d *process, ca *testcert.CA, pairs ...tls.Certificate) *grpc.ClientConn {
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate)
	conn, err := grpc.NewClient(d.grpc.listener.Addr().String(), grpc.WithTransportCredentials(grpccredentials.NewTLS(
		&tls.Config{RootCAs: roots, Certificates: pairs, MinVersion: tls.VersionTLS13})))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func testGRPCProof(t *testing.T, d *process, ca *testcert.CA, certificate, key string) {
	ask := func(conn *grpc.ClientConn, token string) codes.Code {
		ctx := shortly(t)
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
	health, err := grpc_health_v1.NewHealthClient(bare).Check(shortly(t), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, health.GetStatus())
	watch, err := docservicegrpc.NewDocumentsClient(bare).Stats(shortly(t), &docservicepb.StatsRequest{})
	require.Equal(t, codes.Unauthenticated, status.Code(err))
	require.Nil(t, watch)
}
