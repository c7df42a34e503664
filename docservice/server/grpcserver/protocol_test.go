package grpcserver

import (
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcargrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice/docservicegrpc"
	"docstore/docservice/docservicepb"
	"docstore/docservice/server"
	"docstore/internal/servertest"
	"docstore/internal/testcert"
	"docstore/internal/testprogram"
)

// startGRPCDaemon starts a daemon with a gRPC listener and connects to it.
func startGRPCDaemon(t *testing.T, o options) (*testServer, *grpc.ClientConn) {
	t.Helper()
	o.grpc = "127.0.0.1:0"
	d, _ := startTestDaemon(t, o)
	conn, err := grpc.NewClient(d.grpc.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return d, conn
}

// The same stub gets the same answers over gRPC and over Boxcar.
func TestGRPC(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`, "b", `{"id":"b"}`)
	d, conn := startGRPCDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	pool, err := boxcarrpc.NewPool(discovery.Static(d.BoxcarAddress()), nil)
	require.NoError(t, err)
	defer pool.Close()
	overBoxcar, err := boxcargrpc.NewClient(pool, nil)
	require.NoError(t, err)
	defer overBoxcar.Close()

	ask := func(conn *grpc.ClientConn) (answers []proto.Message, failures []string) {
		client := docservicegrpc.NewDocumentsClient(conn)
		ctx := servertest.Shortly(t)
		add := func(answer proto.Message, err error) {
			answers = append(answers, answer)
			failures = append(failures, status.Code(err).String()+": "+status.Convert(err).Message())
		}
		for _, one := range []*docservicepb.GetRequest{
			{Collection: "jobs", Id: []byte("a")},
			{Collection: "jobs", Id: []byte("none")},
			{Collection: "jobs"},
			{Collection: "none", Id: []byte("a")},
		} {
			answer, err := client.Get(ctx, one)
			add(answer, err)
		}
		batch, err := client.BatchGet(ctx, &docservicepb.BatchGetRequest{Collection: "jobs", Ids: [][]byte{[]byte("b"), []byte("a")}})
		add(batch, err)
		page, err := client.Scan(ctx, &docservicepb.ScanRequest{Collection: "jobs"})
		add(page, err)
		dictionary, err := client.Dictionary(ctx, &docservicepb.DictionaryRequest{Collection: "jobs"})
		add(dictionary, err)
		return answers, failures
	}
	wantAnswers, wantFailures := ask(overBoxcar)
	answers, failures := ask(conn)
	assert.Equal(t, wantFailures, failures)
	require.Len(t, answers, len(wantAnswers))
	for i := range answers {
		assert.True(t, proto.Equal(wantAnswers[i], answers[i]), "%v, want %v", answers[i], wantAnswers[i])
	}
	assert.Equal(t, `{"id":"a"}`, string(answers[0].(*docservicepb.GetResponse).GetDocument()))
	assert.Equal(t, []string{"OK: ", "OK: ", "InvalidArgument", "NotFound"}, []string{failures[0], failures[1], failures[2][:15], failures[3][:8]})
	stats, err := docservicegrpc.NewDocumentsClient(conn).Stats(servertest.Shortly(t), new(docservicepb.StatsRequest))
	require.NoError(t, err)
	assert.Equal(t, "jobs", stats.GetCollections()[0].GetName())
	assert.Contains(t, servertest.Get(d.HTTPHandler(), "/metrics").Body.String(), `docstore_fetch_seconds_count{listener="grpc",method="Get"} 4`)
}

func TestGRPCHealth(t *testing.T) {
	queueDir := t.TempDir()
	d, conn := startGRPCDaemon(t, testOptions(t, queueDir))
	client := grpc_health_v1.NewHealthClient(conn)
	check := func(service string) grpc_health_v1.HealthCheckResponse_ServingStatus {
		response, err := client.Check(servertest.Shortly(t), &grpc_health_v1.HealthCheckRequest{Service: service})
		require.NoError(t, err)
		return response.GetStatus()
	}
	require.Equal(t, grpc_health_v1.HealthCheckResponse_NOT_SERVING, check(""), "there is no queue yet")
	watch, err := client.Watch(servertest.Shortly(t), &grpc_health_v1.HealthCheckRequest{Service: "docstore.v1.Documents"})
	require.NoError(t, err)
	watched := func() (grpc_health_v1.HealthCheckResponse_ServingStatus, codes.Code) {
		response, err := watch.Recv()
		return response.GetStatus(), status.Code(err)
	}
	now, code := watched()
	require.Equal(t, grpc_health_v1.HealthCheckResponse_NOT_SERVING, now, code)
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	waitReady(t, d)
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, check("docstore.v1.Documents"))
	now, code = watched()
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, now, code)

	_, err = client.Check(servertest.Shortly(t), &grpc_health_v1.HealthCheckRequest{Service: "none"})
	require.Equal(t, codes.NotFound, status.Code(err))
	unknown, err := client.Watch(servertest.Shortly(t), &grpc_health_v1.HealthCheckRequest{Service: "none"})
	require.NoError(t, err)
	response, err := unknown.Recv()
	require.NoError(t, err)
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN, response.GetStatus())

	// Draining makes clients that watch the health use other servers.
	d.Boxcar().Drain()
	now, code = watched()
	require.Equal(t, grpc_health_v1.HealthCheckResponse_NOT_SERVING, now, code)
	d.Boxcar().Undrain()
	now, code = watched()
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, now, code)

	// Watchers are notified that the daemon stops, and do not delay it.
	require.NoError(t, d.Stop(time.Minute))
	now, code = watched()
	require.Equal(t, grpc_health_v1.HealthCheckResponse_NOT_SERVING, now, code)
	_, code = watched()
	require.Equal(t, codes.Unavailable, code)
}

func TestGRPCReflection(t *testing.T) {
	_, conn := startGRPCDaemon(t, testOptions(t, t.TempDir()))
	stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(servertest.Shortly(t))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
	}))
	response, err := stream.Recv()
	require.NoError(t, err)
	var names []string
	for _, one := range response.GetListServicesResponse().GetService() {
		names = append(names, one.GetName())
	}
	assert.Contains(t, names, "docstore.v1.Documents")
	assert.Contains(t, names, "grpc.health.v1.Health")
}

func TestGRPCPanic(t *testing.T) {
	d, _ := startGRPCDaemon(t, testOptions(t, t.TempDir()))
	_, err := d.grpc.containPanic(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}, func(context.Context, any) (any, error) {
		panic("oh")
	})
	require.Equal(t, codes.Internal, status.Code(err))
}

func TestGRPCAddressInUse(t *testing.T) {
	d, _ := startGRPCDaemon(t, testOptions(t, t.TempDir()))
	o := testOptions(t, t.TempDir())
	o.Protocol = New(Options{Address: d.grpc.Address()})
	_, err := server.Start(o.Options)
	require.ErrorContains(t, err, "--grpc "+d.grpc.Address()+": the address is in use")
}

// result is the result of a command.
type result struct {
	status         int
	stdout, stderr string
}

// nodeExample runs the example of the Node client.
func nodeExample(t *testing.T, args ...string) result {
	t.Helper()
	script, err := filepath.Abs("../../../clients/node/examples/get.js")
	require.NoError(t, err)
	node := testprogram.Path(t, "node")
	require.FileExists(t, "../../../clients/node/dist/src/index.js", "run make setup, which builds the client")
	var stdout, stderr servertest.Buffer
	command := exec.CommandContext(servertest.Shortly(t), node, append([]string{script}, args...)...)
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		require.IsType(t, &exec.ExitError{}, err)
	}
	return result{command.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func TestNode(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`, "ü", `{"id":"ü"}`)
	d, _ := startGRPCDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	for _, one := range []struct {
		ids  []string
		want result
	}{
		{[]string{"ü"}, result{0, "{\"id\":\"ü\"}\n", ""}},
		{[]string{"ü", "none", "a"}, result{1, "{\"id\":\"ü\"}\n{\"id\":\"a\"}\n", "none: not found\n"}},
		{[]string{""}, result{1, "", ": ids[0] has 0 bytes: want 1 to 1024\n"}},
	} {
		assert.Equal(t, one.want, nodeExample(t, append([]string{d.grpc.Address(), "jobs"}, one.ids...)...))
	}
}

func TestNodeWithTLS(t *testing.T) {
	queueDir, dir := t.TempDir(), t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	ca := testcert.NewCA(t, "CA")
	o := testOptions(t, queueDir)
	o.grpc = "127.0.0.1:0"
	o.Security.Certificate, o.Security.Key = ca.Files(t, dir, "localhost")
	o.Security.TokenFile = testcert.Write(t, dir, "tokens", []byte("frontend "+testToken))
	d, _ := startTestDaemon(t, o)
	waitReady(t, d)
	caFile, tokenFile := ca.File(t, dir, "ca"), testcert.Write(t, dir, "token", []byte(testToken+"\n"))
	_, port, err := net.SplitHostPort(d.grpc.Address())
	require.NoError(t, err)
	get := []string{"localhost:" + port, "jobs", "a"} // Node warns about IP addresses in certificates
	assert.Equal(t, result{0, "{\"id\":\"a\"}\n", ""}, nodeExample(t, append([]string{"--ca", caFile, "--token-file", tokenFile}, get...)...))
	assert.Equal(t, result{1, "", "unauthenticated: " + get[0] + ": a token or a certificate is required\n"}, nodeExample(t, append([]string{"--ca", caFile}, get...)...))
	refused := nodeExample(t, append([]string{"--token-file", tokenFile}, get...)...)
	assert.Equal(t, 1, refused.status)
	assert.Contains(t, refused.stderr, "needs ca")
}

// A program that serves gRPC to other hosts in plain text must say so.
func TestPlainTextIsRefused(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.Protocol = New(Options{Address: ":0"})
	_, err := server.Start(o.Options)
	require.ErrorContains(t, err, "--grpc :0 would serve other hosts in plain text")
	o.Security.Insecure, o.Protocol = true, New(Options{Address: ":0"})
	s, err := server.Start(o.Options)
	require.NoError(t, err)
	require.NoError(t, s.Stop(time.Second))
}
