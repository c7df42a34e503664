package docserviced

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcargrpc"
	"docstore/boxcarrpc/credentials"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice/docservicegrpc"
	"docstore/docservice/docservicepb"
	"docstore/docservice/explain"
	"docstore/docservice/peers"
	"docstore/docservice/server"
	"docstore/internal/servertest"
	"docstore/internal/testcert"
)

// TestAccess asks for two collections over all listeners, as a client that may use one of
// them, and as one that may use all.
func TestAccess(t *testing.T) {
	const frontendToken, operatorToken = "frontend-frontend", "operator-operator"
	jobs, salaries, dir := t.TempDir(), t.TempDir(), t.TempDir()
	servertest.Fill(t, jobs, "a", `{"id":"a"}`)
	servertest.Fill(t, salaries, "a", `{"id":"a","salary":1}`)
	ca := testcert.NewCA(t, "CA")
	o := testOptions(t, jobs)
	o.Collections = append(o.Collections, server.Collection{Name: "salaries", Source: salaries})
	o.grpc, o.HTTP.Address, o.HTTP.LookUp = "127.0.0.1:0", "0.0.0.0:0", true
	o.source.PeerTransfers = 4
	o.Security.Certificate, o.Security.Key = ca.Files(t, dir, "server")
	o.Security.TokenFile = testcert.Write(t, dir, "tokens", []byte("frontend "+frontendToken+"\noperator "+operatorToken+"\n"))
	o.Security.Access = testcert.Write(t, dir, "access", []byte("frontend jobs\noperator *\n"))
	d, _ := startTestDaemon(t, o)
	for _, c := range d.Collections() {
		require.NoError(t, c.WaitReady(t.Context()))
	}
	config, err := credentials.ClientTLS(credentials.Files{CA: ca.File(t, dir, "ca")}, nil)
	require.NoError(t, err)
	clientTLS, err := config()
	require.NoError(t, err)

	for client, token := range map[string]string{"frontend": frontendToken, "operator": operatorToken} {
		pool, err := boxcarrpc.NewPool(discovery.Static(d.BoxcarAddress()), &boxcarrpc.PoolOptions{TLS: config, Token: func() (string, error) { return token, nil }})
		require.NoError(t, err)
		defer pool.Close()
		overBoxcar, err := boxcargrpc.NewClient(pool, nil)
		require.NoError(t, err)
		defer overBoxcar.Close()
		overGRPC, err := grpc.NewClient(d.grpc.Address(), grpc.WithTransportCredentials(grpccredentials.NewTLS(clientTLS)))
		require.NoError(t, err)
		defer overGRPC.Close()
		for name, stub := range map[string]docservicegrpc.DocumentsClient{
			"Boxcar": docservicegrpc.NewDocumentsClient(overBoxcar), "gRPC": docservicegrpc.NewDocumentsClient(overGRPC),
		} {
			ctx := servertest.Shortly(t)
			if name == "gRPC" {
				ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
			}
			for _, collection := range []string{"jobs", "salaries", "salaries/7", ""} {
				permitted := client == "operator" || collection == "jobs"
				for call, err := range callAll(ctx, stub, collection) {
					what := fmt.Sprintf("%s of %q for %s over %s", call, collection, client, name)
					require.Equal(t, !permitted, status.Code(err) == codes.PermissionDenied, "%s: %v", what, err)
				}
			}
		}
		require.Equal(t, client == "frontend", boxcarrpc.CodeOf(fetchFile(pool, "salaries")) == boxcarrpc.CodePermissionDenied)
		require.Equal(t, boxcarrpc.CodeNotFound, boxcarrpc.CodeOf(fetchFile(pool, "jobs")))
		require.Equal(t, explain.Found, explainAnswer(t, pool, "jobs"))
		require.Equal(t, client == "frontend", explainAnswer(t, pool, "salaries") == explain.Forbidden)
		testAccessHTTP(t, d, &http.Client{Transport: &http.Transport{TLSClientConfig: clientTLS}}, client, token)
	}
}

// callAll calls the methods of the service.
func callAll(ctx context.Context, stub docservicegrpc.DocumentsClient, collection string) map[string]error {
	failed := map[string]error{}
	_, failed["Get"] = stub.Get(ctx, &docservicepb.GetRequest{Collection: collection, Id: []byte("a")})
	_, failed["BatchGet"] = stub.BatchGet(ctx, &docservicepb.BatchGetRequest{Collection: collection, Ids: [][]byte{[]byte("a")}})
	_, failed["Scan"] = stub.Scan(ctx, &docservicepb.ScanRequest{Collection: collection})
	_, failed["Stats"] = stub.Stats(ctx, &docservicepb.StatsRequest{Collection: collection})
	_, failed["Dictionary"] = stub.Dictionary(ctx, &docservicepb.DictionaryRequest{Collection: collection, Hash: make([]byte, 16)})
	return failed
}

// explainAnswer returns the answer to an id in the facts of the server.
func explainAnswer(t *testing.T, pool *boxcarrpc.Pool, collection string) string {
	t.Helper()
	stream, err := pool.Stream(servertest.Shortly(t), explain.Method, nil)
	require.NoError(t, err)
	defer stream.Close()
	request, err := json.Marshal(explain.Request{Collection: collection, ID: []byte("a")})
	require.NoError(t, err)
	require.NoError(t, stream.Send(request))
	content, err := stream.Receive(nil)
	require.NoError(t, err)
	var facts explain.Facts
	require.NoError(t, json.Unmarshal(content, &facts))
	return facts.Answer
}

// fetchFile asks for a file as another server does.
func fetchFile(pool *boxcarrpc.Pool, collection string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	stream, err := pool.Stream(ctx, peers.Method, boxcarrpc.Metadata(nil).Append("collection", collection))
	if err != nil {
		return err
	}
	defer stream.Close()
	_, err = stream.Receive(nil)
	return err
}

// testAccessHTTP requests the paths of both collections.
func testAccessHTTP(t *testing.T, d *process, client *http.Client, name, token string) {
	defer client.CloseIdleConnections()
	_, port, err := net.SplitHostPort(d.HTTPAddress())
	require.NoError(t, err)
	get := func(path string) (int, string) {
		request, err := http.NewRequest(http.MethodGet, "https://127.0.0.1:"+port+path, nil)
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := client.Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(body)
	}
	for _, path := range []string{"/documents/%s/a", "/collections/%s/ids", "/collections/%s/count", "/collections/%s/export", "/browse?collection=%s"} {
		code, _ := get(fmt.Sprintf(path, "jobs"))
		require.Equal(t, http.StatusOK, code, path)
		want := http.StatusForbidden
		if name == "operator" {
			want = http.StatusOK
		}
		code, body := get(fmt.Sprintf(path, "salaries"))
		require.Equal(t, want, code, path)
		require.Equal(t, name == "operator", !strings.Contains(body, "--access of the server"))
	}
	request, err := http.NewRequest(http.MethodPost, "https://127.0.0.1:"+port+"/documents/salaries", strings.NewReader(`["a"]`))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	batch, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, name == "operator", strings.Contains(string(batch), `"salary":1`), string(batch))
	require.Equal(t, name == "operator", response.StatusCode == http.StatusOK, string(batch))
	for _, path := range []string{"/collections", "/lookup?collection=salaries&id=a", "/explain?collection=salaries&id=a"} {
		_, body := get(path)
		require.Equal(t, name == "operator", strings.Contains(body, map[string]string{"/collections": "salaries", "/lookup": "salary", "/explain": "served: version"}[strings.Split(path, "?")[0]]), path)
	}
}

// A certificate whose name is that of the caller of loopback HTTP, or of no client, has no
// permissions over any listener.
func TestNamesOfCertificatesGiveNoAccess(t *testing.T) {
	jobs, dir := t.TempDir(), t.TempDir()
	servertest.Fill(t, jobs, "a", `{"id":"a"}`)
	ca := testcert.NewCA(t, "CA")
	o := testOptions(t, jobs)
	o.grpc, o.HTTP.Address, o.HTTP.LookUp = "127.0.0.1:0", "0.0.0.0:0", true
	o.Security.Certificate, o.Security.Key = ca.Files(t, dir, "server")
	o.Security.ClientCA = ca.File(t, dir, "ca")
	o.Security.Access = testcert.Write(t, dir, "access", []byte("operator *\n"))
	d, _ := startTestDaemon(t, o)
	for _, c := range d.Collections() {
		require.NoError(t, c.WaitReady(t.Context()))
	}
	_, httpPort, err := net.SplitHostPort(d.HTTPAddress())
	require.NoError(t, err)
	for _, c := range []struct {
		name      string
		overHTTP  int
		overGRPC  codes.Code
		connected bool // over Boxcar
	}{
		{"operator", http.StatusOK, codes.OK, true},
		{" local", http.StatusForbidden, codes.PermissionDenied, true},
		{"local", http.StatusForbidden, codes.PermissionDenied, true},
		{"anonymous", http.StatusForbidden, codes.PermissionDenied, true},
		{"", http.StatusUnauthorized, codes.Unauthenticated, false},
	} {
		files := credentials.Files{CA: o.Security.ClientCA}
		files.Certificate, files.Key = ca.Files(t, t.TempDir(), "client"+c.name)
		certificate, key := ca.Issue(t, c.name, time.Now().Add(time.Hour))
		testcert.Write(t, filepath.Dir(files.Certificate), filepath.Base(files.Certificate), certificate)
		testcert.Write(t, filepath.Dir(files.Key), filepath.Base(files.Key), key)
		config, err := credentials.ClientTLS(files, nil)
		require.NoError(t, err)
		clientTLS, err := config()
		require.NoError(t, err)

		overGRPC, err := grpc.NewClient(d.grpc.Address(), grpc.WithTransportCredentials(grpccredentials.NewTLS(clientTLS)))
		require.NoError(t, err)
		_, err = docservicegrpc.NewDocumentsClient(overGRPC).Get(servertest.Shortly(t), &docservicepb.GetRequest{Collection: "jobs", Id: []byte("a")})
		require.Equal(t, c.overGRPC, status.Code(err), "%q: %v", c.name, err)
		require.NoError(t, overGRPC.Close())

		client := &http.Client{Transport: &http.Transport{TLSClientConfig: clientTLS}}
		response, err := client.Get("https://127.0.0.1:" + httpPort + "/documents/jobs/a")
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, c.overHTTP, response.StatusCode, c.name)
		client.CloseIdleConnections()

		testNameOverBoxcar(t, d, config, c.name, c.overGRPC, c.connected)
	}
}

// testNameOverBoxcar gets a document and tries to drain the server, which has no operators.
func testNameOverBoxcar(t *testing.T, d *process, config func() (*tls.Config, error), name string, want codes.Code, connected bool) {
	pool, err := boxcarrpc.NewPool(discovery.Static(d.BoxcarAddress()), &boxcarrpc.PoolOptions{TLS: config})
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close()) }()
	if !connected {
		servertest.Until(t.Context(), func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			err := pool.WaitReady(ctx)
			return strings.Contains(fmt.Sprint(err), "the certificate does not identify the peer")
		})
		return
	}
	overBoxcar, err := boxcargrpc.NewClient(pool, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, overBoxcar.Close()) }()
	_, err = docservicegrpc.NewDocumentsClient(overBoxcar).Get(servertest.Shortly(t), &docservicepb.GetRequest{Collection: "jobs", Id: []byte("a")})
	require.Equal(t, want, status.Code(err), "%q: %v", name, err)
	stream, err := pool.Stream(servertest.Shortly(t), boxcarrpc.MethodDrain, nil)
	require.NoError(t, err)
	defer stream.Close()
	_, err = stream.Receive(nil)
	require.Equal(t, boxcarrpc.CodePermissionDenied, boxcarrpc.CodeOf(err), name)
}
