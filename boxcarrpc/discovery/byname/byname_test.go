package byname

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/boxcarrpc/discovery"
)

// A probe in progress when a member shuts down ends later.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

func first(t *testing.T, target string) (list []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	servers, err := First(ctx, target, nil)
	require.NoError(t, err)
	for _, s := range servers {
		list = append(list, s.Address)
	}
	return list
}

func TestTargets(t *testing.T) {
	require.Equal(t, []string{"a:1", "b:2"}, first(t, "a:1,b:2"))
	require.Equal(t, []string{"be-0:7", "be-1:7", "be-2:7"}, first(t, "pattern:3:be-%d:7"))
	require.Equal(t, []string{"be-00:7", "be-01:7"}, first(t, "pattern:2:be-%02d:7"))
	path := filepath.Join(t.TempDir(), "servers")
	require.NoError(t, os.WriteFile(path, []byte("c:3\n"), 0o600))
	require.Equal(t, []string{"c:3"}, first(t, "file:"+path))
	require.Equal(t, []string{"127.0.0.1:7070"}, first(t, "dns:127.0.0.1:7070"))
	for _, bad := range []string{"", "a:1,", "pattern:x:be-%d", "pattern:3:be", "pattern:3:%s-%d", "pattern:0:be-%d", "pattern:2:be-%d%", "pattern:2147483648:be-%d", "file:", "dns:", "srv:",
		"etcd://a:1", "gossip://", "http://a:1",
		"localhost", "a:1,localhost", "::1", "a:0", "a:65536", "a:no-such-service", "pattern:3:be-%d.search", "pattern:3:be:6553%d4", "dns:no port", "dns:a"} {
		_, err := Parse(bad, nil)
		require.Error(t, err, bad)
	}
	for _, good := range []string{":7070", "[::1]:http", "pattern:3:be:707%d"} {
		_, err := Parse(good, nil)
		require.NoError(t, err, good)
	}
	_, err := First(t.Context(), "file:"+path+".none", nil)
	require.ErrorContains(t, err, "no servers found")
	for _, bad := range []string{"a:1", "file:x", "etcd://a:1", "gossip://a:1/x"} {
		_, err := Register(bad, discovery.Server{Address: "a:1"}, nil)
		require.Error(t, err, bad)
	}
	_, err = Register("etcd://a:1/x", discovery.Server{}, nil)
	require.Error(t, err)
}

func TestAServerIsFoundByGossip(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	seed := l.Addr().String()
	require.NoError(t, l.Close())
	server, err := Register("gossip://"+seed+"?bind="+seed, discovery.Server{Address: "be:7070"}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"be:7070"}, first(t, "gossip://"+seed))
	require.NoError(t, server.Close())
}

// Only the registries' packages, this one, commits and placements in etcd, and
// commands link the registries.
func TestOnlySomePackagesLinkRegistries(t *testing.T) {
	const module, registries = "docstore/", "docstore/boxcarrpc/discovery/"
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Deps " "}}`, module+"...").Output()
	require.NoError(t, err)
	importers := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		path, deps, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(path, module+"cmd/") {
			continue
		}
		if strings.Contains(deps, "go.etcd.io/") || strings.Contains(deps, "hashicorp/memberlist") {
			importers[path] = true
		}
	}
	require.Equal(t, map[string]bool{
		registries + "etcd": true, registries + "gossip": true, registries + "byname": true,
		module + "queue/publish/etcdlog": true,
		module + "docservice/column":     true, module + "docservice/placement/etcdmap": true, module + "docservice/sharded/etcdclient": true, module + "internal/shardtest": true,
		module + "internal/simulate": true, module + "internal/simulate/etcd": true,
		module + "docservice/placement/fleet": true, module + "docservice/server/fleetview": true, module + "docservice/server/bucketsource": true,
	}, importers)
}

// The client library links no registry.
func TestPoolsAndServersLinkNoGRPC(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "docstore/boxcarrpc", "docstore/boxcarrpc/discovery").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "docstore/boxcarrpc/subset\n")
	require.NotContains(t, string(out), "google.golang.org/grpc")
}
