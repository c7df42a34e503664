package boxcargrpc_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	grpccredentials "google.golang.org/grpc/credentials"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/credentials"
	"docstore/internal/testcert"
)

// oauth is credentials that check the security level of the connection, like grpc-go's
// OAuth credentials.
type oauth struct{}

func (oauth) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	info, _ := grpccredentials.RequestInfoFromContext(ctx)
	return map[string]string{"authorization": "Bearer x"}, grpccredentials.CheckSecurityLevel(info.AuthInfo, grpccredentials.PrivacyAndIntegrity)
}

func (oauth) RequireTransportSecurity() bool { return true }

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	ca := testcert.NewCA(t, "CA")
	files := credentials.Files{CA: ca.File(t, dir, "ca")}
	var s setup
	var err error
	files.Certificate, files.Key = ca.Files(t, dir, "server")
	s.serverOptions.TLS, err = credentials.ServerTLS(files, nil)
	require.NoError(t, err)
	files.Certificate, files.Key = ca.Files(t, dir, "frontend")
	s.poolOptions.TLS, err = credentials.ClientTLS(files, nil)
	require.NoError(t, err)

	var atServer []*peer.Peer
	seen := func(ctx context.Context) {
		p, _ := peer.FromContext(ctx)
		atServer = append(atServer, p)
		assert.Equal(t, "frontend", boxcarrpc.PeerOf(ctx).Identity.Name)
		assert.Equal(t, []string{"Bearer x"}, metadata.ValueFromIncomingContext(ctx, "authorization"))
	}
	s.service = &scripted{
		unary: func(ctx context.Context, request *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
			seen(ctx)
			return echoUnary(ctx, request)
		},
		duplex: func(stream testgrpc.TestService_FullDuplexCallServer) error {
			seen(stream.Context())
			return nil
		},
	}
	s.client.Credentials = []grpccredentials.PerRPCCredentials{oauth{}}
	client := testgrpc.NewTestServiceClient(overBoxcar(t, s))
	var atClient peer.Peer
	_, err = client.UnaryCall(soon(t), new(testgrpc.SimpleRequest), grpc.Peer(&atClient), grpc.PerRPCCredentials(token{secure: true}))
	require.NoError(t, err)
	stream, err := client.FullDuplexCall(soon(t))
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, "EOF", end(err))
	fromStream, _ := peer.FromContext(stream.Context())

	require.Len(t, atServer, 2)
	for name, peers := range map[string][]*peer.Peer{"frontend": atServer, "server": {&atClient, fromStream}} {
		for _, one := range peers {
			info := one.AuthInfo.(grpccredentials.TLSInfo)
			assert.Equal(t, name, info.State.PeerCertificates[0].Subject.CommonName)
			assert.Equal(t, grpccredentials.PrivacyAndIntegrity, info.SecurityLevel)
		}
	}
}
