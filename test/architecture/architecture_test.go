// Package architecture tests which packages import which: docs/architecture.md draws it.
package architecture

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rooms lists the packages bottom up, each with those below it, and the rooms that it may import
// besides internal. A room imports only rooms above it in this list.
var rooms = []struct{ name, imports string }{
	{"internal", ""},
	{"docs", ""},
	{"wal", ""},
	{"bloom", ""},
	{"queue/codec", ""},
	{"queue/codec/lzo", "queue/codec"}, // under the GPL
	{"queue/stored", "queue/codec"},
	{"queue", "queue/codec queue/codec/lzo queue/stored"},
	{"queue/maintain", "queue queue/codec"},
	{"queue/shard", ""},
	{"queue/shardset", "queue queue/shard"},
	{"queue/digests", "queue queue/shard"},
	{"queue/bucket", ""},
	{"lsm", "wal bloom"},
	{"boxcarrpc/subset", ""},
	{"boxcarrpc/core", "boxcarrpc/subset"},
	{"boxcarrpc/budget", "boxcarrpc/core"},
	{"boxcarrpc", "boxcarrpc/subset boxcarrpc/core boxcarrpc/budget"},
	{"queue/publish", "queue queue/maintain queue/shard queue/bucket boxcarrpc"}, // etcdlog: the address of an etcd
	{"docservice", "boxcarrpc queue/codec queue/stored"},                         // the client
	{"docservice/memcached", ""},
	{"docservice/readiness", ""},
	{"docservice/placement", "docservice/readiness boxcarrpc queue/shard"},
	{"docservice/sharded", "docservice docservice/placement boxcarrpc queue/shard"}, // the client of several shards
	{"docservice/collection", "docservice docservice/memcached docservice/readiness boxcarrpc boxcarrpc/budget lsm queue queue/codec queue/stored queue/maintain queue/shard"},
	{"docservice/router", "docservice docservice/sharded docservice/collection boxcarrpc boxcarrpc/core boxcarrpc/budget queue/codec queue/shard"},
	{"docservice/follow", "docservice/collection docservice/readiness queue queue/shard queue/bucket queue/publish"},
	{"docservice/column", "docservice/follow docservice/collection docservice/readiness docservice/placement boxcarrpc queue/shard"},
	{"docservice/peers", "boxcarrpc queue queue/publish"},
	{"docservice/server", "docs docservice docservice/placement docservice/sharded docservice/collection docservice/memcached docservice/router docservice/follow docservice/column docservice/peers docservice/readiness " +
		"boxcarrpc boxcarrpc/core boxcarrpc/budget lsm queue queue/codec queue/stored queue/shard queue/bucket queue/publish"},
	{"ingest", "queue queue/shardset queue/digests queue/bucket boxcarrpc"}, // the TLS files of brokers
	{"cmd", "*"},
	{"examples", "*"},
	{"test", "*"},
}

// roomOf returns the room of a package: the longest name of which it is part.
func roomOf(path string) string {
	found := ""
	for _, r := range rooms {
		if (path == r.name || strings.HasPrefix(path, r.name+"/")) && len(r.name) > len(found) {
			found = r.name
		}
	}
	return found
}

// isForTests reports whether a package is only imported by tests, which may import everything.
func isForTests(path string) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	return strings.HasPrefix(name, "test") || strings.HasSuffix(name, "test") || name == "callpath" || strings.HasPrefix(path, "internal/simulate")
}

// No package imports one of a room that is not above its own in the table.
func TestImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "docstore/...").Output()
	require.NoError(t, err)
	allowed, used := map[string][]string{}, map[string]map[string]bool{}
	for i, r := range rooms {
		for _, name := range strings.Fields(r.imports) {
			above := slices.IndexFunc(rooms, func(o struct{ name, imports string }) bool { return o.name == name })
			require.True(t, name == "*" || above >= 0 && above < i, "%s may not import %s, which is not above it in the table", r.name, name)
		}
		allowed[r.name], used[r.name] = append(strings.Fields(r.imports), "internal", r.name), map[string]bool{}
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		path := strings.TrimPrefix(fields[0], "docstore/")
		room := roomOf(path)
		require.NotEmpty(t, room, "%s is in no room", path)
		for _, other := range fields[1:] {
			name, own := strings.CutPrefix(other, "docstore/")
			if !own || isForTests(path) {
				continue
			}
			require.False(t, isForTests(name), "%s imports %s, which is for tests", path, name)
			to := roomOf(name)
			used[room][to] = true
			require.True(t, slices.Contains(allowed[room], to) || allowed[room][0] == "*", "%s imports %s: %s may import only %s", path, name, room, allowed[room])
		}
	}
	for _, r := range rooms {
		for _, name := range strings.Fields(r.imports) {
			require.True(t, name == "*" || used[r.name][name], "%s does not import %s any more: shorten the table; it imports %v", r.name, name, slices.Sorted(maps.Keys(used[r.name])))
		}
	}
}

// No client links the codec that is under the GPL.
func TestClientsWithoutGPL(t *testing.T) {
	for packages, links := range map[string]bool{"docstore/docservice docstore/docservice/sharded/etcdclient docstore/boxcarrpc": false, "docstore/queue": true} {
		args := append([]string{"list", "-deps"}, strings.Fields(packages)...)
		out, err := exec.CommandContext(t.Context(), "go", args...).Output()
		require.NoError(t, err)
		require.Equal(t, links, strings.Contains(string(out), "go-lzo"), packages)
	}
}
