package boxcar

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/docservice/placement"
	"docstore/docservice/placement/etcdmap"
	"docstore/docservice/placement/fleet"
	"docstore/docservice/server/livepage"
	"docstore/internal/shardtest"
	"docstore/queue/shard"
)

// The commands find the servers of a sharded collection in etcd.
func TestShardedCollection(t *testing.T) {
	c := shardtest.New(t, 4, 60)
	servers := c.Even("a", "b")
	command := func(stdin string, args ...string) result {
		t.Helper()
		return run(t.Context(), stdin, append(args, "--etcd", c.Etcd.Address, "--collection", shardtest.Collection, "--timeout", "20s")...)
	}
	id := c.IDs[7]
	require.Equal(t, result{cli.ExitOK, c.Documents[id] + "\n", ""}, command("", "get", id))
	require.Equal(t, result{cli.ExitFailure, "", "not found: collection jobs has no document \"never\"\n"}, command("", "get", "never"))
	var lines, list strings.Builder
	for _, id := range c.IDs {
		fmt.Fprintf(&lines, `{"id":%q,"found":true,"document":%s}`+"\n", id, c.Documents[id])
		fmt.Fprintln(&list, id)
	}
	all := result{cli.ExitOK, lines.String(), ""}
	require.Equal(t, all, command(list.String(), "mget", "-"))
	require.Equal(t, all, command("", "scan"))

	ids := filepath.Join(t.TempDir(), "ids")
	require.NoError(t, os.WriteFile(ids, []byte(list.String()), 0o600))
	r := command("", "bench", "--ids", ids, "--rate", "200", "--duration", "300ms", "--warmup", "100ms", "--callers", "4", "--json")
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	var bench report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &bench))
	require.Equal(t, 2, bench.Servers)
	require.Zero(t, bench.Failed+bench.NotFound)

	// Only the servers of the canary's column are probed for it.
	r = command("", "probe", "--id", id)
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	require.Contains(t, r.stdout, "well: 2 of 2 servers")
	servers["b"].Fetch(1, 1)
	require.Eventually(t, func() bool {
		return strings.Contains(command("", "probe", "--id", idOf(c, 0)).stderr, "it is not ready for all shards of its column")
	}, time.Minute, 10*time.Millisecond)
	servers["b"].Hold(1)

	r = command("", "fleet")
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	require.Regexp(t, `(?s)^jobs: 4 shards of 3\.9 KiB in 2 columns.*\na +2 +0 +`+servers["a"].Address+` +zone-0 `, r.stdout)
	var f fleet.Fleet
	r = command("", "fleet", "--json")
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &f))
	require.Len(t, f.Columns, 2)

	// Nothing waits for a column without servers, and the documents of the others are read.
	servers["b"].Stop()
	living, dead := idOf(c, 0), idOf(c, 1)
	require.Equal(t, result{cli.ExitOK, c.Documents[living] + "\n", ""}, command("", "get", living))
	r = command("", "get", dead)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stderr, "no server of [collection jobs] can be reached")
	require.Contains(t, r.stderr, "the source lists no server")
	r = command("", "mget", dead, living)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stdout, fmt.Sprintf(`{"id":%q,"found":false,"code":"unavailable","error":"`, dead))
	require.Contains(t, r.stdout, fmt.Sprintf(`{"id":%q,"found":true,"document":%s}`, living, c.Documents[living]))
	require.Contains(t, r.stderr, "1 of 2 documents could not be fetched")
}

// idOf returns an id of a shard.
func idOf(c *shardtest.Cluster, shard int) string {
	for _, id := range c.IDs {
		if c.Layout.ShardString(id) == shard {
			return id
		}
	}
	panic("no document in the shard")
}

// A command that has read the placement once works while etcd is away.
func TestCommandsWithoutEtcd(t *testing.T) {
	c := shardtest.New(t, 4, 60)
	c.Even("a", "b")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	caches := [][]string{nil, {"--cache", dir}}
	command := func(cache []string, args ...string) result {
		t.Helper()
		args = append(args, "--etcd", c.Etcd.Address, "--collection", shardtest.Collection, "--timeout", "5s")
		return run(t.Context(), "", append(args, cache...)...)
	}
	var lines strings.Builder
	for _, id := range c.IDs {
		fmt.Fprintf(&lines, `{"id":%q,"found":true,"document":%s}`+"\n", id, c.Documents[id])
	}
	for _, cache := range caches {
		require.Equal(t, result{cli.ExitOK, lines.String(), ""}, command(cache, "scan"))
	}
	c.Etcd.Kill()
	defer c.Etcd.Restart(t) // so that the servers leave at once
	for _, cache := range caches {
		for i := range 4 {
			id := idOf(c, i)
			r := command(cache, "get", id)
			require.Equal(t, cli.ExitOK, r.status, r.stderr)
			require.Equal(t, c.Documents[id]+"\n", r.stdout)
			require.Contains(t, r.stderr, "etcd does not answer; using the last placement")
		}
		r := command(cache, append([]string{"mget"}, c.IDs...)...)
		require.Equal(t, cli.ExitOK, r.status, r.stderr)
		require.Equal(t, lines.String(), r.stdout)
	}
	r := command([]string{"--cache", "none"}, "get", idOf(c, 0))
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stderr, "does not answer; is it running there?")
}

// A placement that is known before a command waits for it, as on a busy machine, is used while
// etcd is away.
func TestKnownPlacementIsNotAwaited(t *testing.T) {
	file := filepath.Join(t.TempDir(), "placement.json")
	content, err := json.Marshal(&placement.Map{Collection: "jobs", Layout: shard.Layout{Shards: 1}, Shards: make([]placement.Place, 1)})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, content, 0o600))
	flags := shardFlags{etcd: "127.0.0.1:1"}
	store, err := etcdmap.Open(flags.etcd, "jobs", &etcdmap.Options{File: file, Timeout: time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	require.NoError(t, flags.awaitPlacement(t.Context(), store, "jobs"))
}

// The daemons of top are those whose servers report a page.
func TestTopOfAShardedCollection(t *testing.T) {
	c := shardtest.New(t, 1, 1)
	_, now := moments()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(livepage.Status{Time: time.Now(), Started: now.Started, Host: "be-1", Ready: true})
	}))
	defer page.Close()
	c.Start("a", "")
	args := []string{"top", "--etcd", c.Etcd.Address, "--collection", "jobs", "--once"}
	r := run(t.Context(), "", args...)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stderr, "no server of collection jobs has a status page")
	c.Start("a", page.URL+"/")
	require.Eventually(t, func() bool { return c.States(2) }, time.Minute, 10*time.Millisecond)
	env := &cli.Env{Stdin: strings.NewReader(""), Now: time.Now}
	var out, err strings.Builder
	env.Stdout, env.Stderr = &out, &err
	require.Equal(t, cli.ExitOK, cli.Run(t.Context(), New, env, args), err.String())
	require.Contains(t, out.String(), "docserviced be-1, ready")
}

func TestShardFlagsAreChecked(t *testing.T) {
	for _, x := range []struct{ args, want string }{
		{"get --etcd a:1 --servers b:1 --collection jobs x", "--etcd and --servers exclude each other"},
		{"probe --etcd a:1 --servers b:1 --collection jobs", "--etcd and --servers exclude each other"},
		{"top --etcd a:1 --http b:1 --collection jobs", "--etcd and --http exclude each other"},
		{"top --etcd a:1", "--etcd and --collection go together"},
		{"top --collection jobs", "--etcd and --collection go together"},
		{"bench --etcd a:1", "--etcd needs --collection and --ids"},
		{"fleet --collection jobs", "--etcd is missing"},
		{"fleet --etcd a:1 --collection jobs --interval 1ms", "--interval 1ms: must be at least 1s"},
		{"get --etcd http://a/b --collection jobs x", "want etcd://HOST:PORT"},
		{"get --etcd a:1 --collection a/b x", "must not be empty or contain a slash"},
	} {
		r := run(t.Context(), "", strings.Fields(x.args)...)
		require.Equal(t, cli.ExitUsage, r.status, "%s: %s", x.args, r.stderr)
		require.Contains(t, r.stderr, x.want)
	}
	c := shardtest.New(t, 1, 1)
	t.Run("the command line overrides the environment", func(t *testing.T) {
		t.Setenv("BOXCAR_SERVERS", "127.0.0.1:1")
		r := run(t.Context(), "", "get", "--etcd", c.Etcd.Address, "--collection", "other", "x")
		require.Contains(t, r.stderr, "collection other has no placement in "+c.Etcd.Address)
		t.Setenv("BOXCAR_ETCD", c.Etcd.Address)
		r = run(t.Context(), "", "get", "--collection", "other", "x")
		require.Contains(t, r.stderr, "--etcd and --servers exclude each other")
		r = run(t.Context(), "", "get", "--servers", "127.0.0.1:1", "--collection", "other", "--timeout", "100ms", "x")
		require.Contains(t, r.stderr, "no server of [127.0.0.1:1] answered")
	})
	for _, command := range []string{"get x", "fleet", "probe"} {
		r := run(t.Context(), "", append(strings.Fields(command), "--etcd", c.Etcd.Address, "--collection", "other")...)
		require.Equal(t, cli.ExitFailure, r.status)
		require.Contains(t, r.stderr, "collection other has no placement in "+c.Etcd.Address)
	}
	r := run(t.Context(), "", "get", "--etcd", "127.0.0.1:1", "--collection", "other", "--timeout", "300ms", "x")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stderr, "etcd at 127.0.0.1:1 does not answer; is it running there?")
}
