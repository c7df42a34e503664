package docserviced

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/docservice/placement"
	"docstore/docservice/placement/fleet"
	"docstore/docservice/server"
	"docstore/internal/servertest"
	"docstore/internal/shardtest"
)

// placementOf returns a function that runs a command of placement.
func placementOf(t *testing.T, c *shardtest.Cluster) func(args ...string) result {
	return func(args ...string) result {
		t.Helper()
		return run(t.Context(), append(append([]string{"placement"}, args...), "--etcd", c.Etcd.Address, "--collection", shardtest.Collection)...)
	}
}

func allOn(column string) func(*placement.Map) bool {
	return func(m *placement.Map) bool {
		for _, p := range m.Shards {
			if p.Column != column || p.Next != "" {
				return false
			}
		}
		return true
	}
}

// An operator plans, applies, drains and pauses; each command shows its effect.
func TestPlacement(t *testing.T) {
	c := shardtest.New(t, 4, 60)
	command := placementOf(t, c)
	audit := filepath.Join(t.TempDir(), "audit.log")
	t.Setenv("DOCSTORE_AUDIT_LOG", audit)
	c.Even("a") // waits until all shards are there
	b := c.Start("b", "http://127.0.0.1:7071")
	require.Eventually(t, func() bool { // b reports its state
		var p fleet.Plan
		return json.Unmarshal([]byte(command("plan", "--json").stdout), &p) == nil && len(p.Moves) == 1
	}, time.Minute, 10*time.Millisecond)

	planned := command("plan")
	require.Equal(t, cli.ExitOK, planned.status, planned.stderr)
	require.Regexp(t, `^plan [0-9a-f]{8}: 1 move of 100\d B between columns, from epoch \d+
the fullest column has 2\.00 of its share before, 1\.50 after
shard \d: from a to b, 100\d B
$`, planned.stdout)
	require.NotContains(t, command("show").stdout, "move", "nothing has changed")

	r := command("apply", "00000000")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stderr, "plan 00000000 is not applied: servers or sizes have changed, and the plan is now ")
	id := regexp.MustCompile(`[0-9a-f]{8}`).FindString(planned.stdout)
	r = command("apply", id)
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	moving := c.Wait(func(m *placement.Map) bool { return len(m.Holds("b")) == 1 }).Holds("b")[0]
	b.Fetch(moving, 400)
	require.Eventually(t, func() bool {
		return regexp.MustCompile(`(?m)^\d +a +b +400 B of 100\d B +\S+( B)? +0 of 1$`).MatchString(command("show").stdout)
	}, time.Minute, 10*time.Millisecond)
	shown := command("show")
	require.Regexp(t, `^jobs: 4 shards of 3\.9 KiB in 2 columns, epoch \d+ of generation g
placed by placer; manifest 3 is the newest target

column  shards  row .*
a       4       0    127\.0\.0\.1:\d+ +zone-0  ready +4 of 4 .*
b       0       0    127\.0\.0\.1:\d+ +zone-0  fetching +0 of 1 .*

move of shard .*
.*
column a holds shards 0-3: 3\.9 KiB
$`, shown.stdout)
	b.Hold(moving)
	c.Wait(func(m *placement.Map) bool { return m.Shards[moving].Column == "b" })

	require.Contains(t, command("pause").stdout, "moves are paused")
	b.Hold(0, 1, 2, 3)
	r = command("drain", "--dry-run", "a")
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	require.Contains(t, r.stdout, "3 moves")
	require.NotContains(t, command("show").stdout, "drained")
	r = command("drain", "a")
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	shown = command("show")
	require.Contains(t, shown.stdout, "a (drained)")
	require.Contains(t, shown.stdout, "moves are paused: run docserviced placement resume")
	require.Contains(t, shown.stdout, "3 moves of the plan wait")
	require.Contains(t, command("resume").stdout, "moves are started")
	c.Wait(allOn("b"))
	require.Contains(t, command("undrain", "a").stdout, "column a is not drained")
	var f fleet.Fleet
	require.NoError(t, json.Unmarshal([]byte(command("show", "--json").stdout), &f))
	require.Equal(t, []int{0, 1, 2, 3}, f.Columns[1].Shards)
	require.Equal(t, "http://127.0.0.1:7071", f.Columns[1].Rows[0].Page)

	// Without room there is no plan, and nothing changes.
	r = command("drain", "b")
	require.Equal(t, cli.ExitOK, r.status, "a has room: %s", r.stderr)
	r = command("drain", "a")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stderr, "no feasible plan")
	require.NotContains(t, command("show").stdout, "a (drained)")
	require.Equal(t, []string{
		"placement apply failed", "placement apply done", "placement pause done", "placement drain done", "placement resume done",
		"placement undrain done", "placement drain done", "placement drain failed",
	}, audited(t, audit))
}

func TestPlacementRefuses(t *testing.T) {
	c := shardtest.New(t, 1, 1)
	command := placementOf(t, c)
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"drain", "nowhere"}, `collection jobs has no column "nowhere"; see placement show`},
		{[]string{"undrain", "a"}, `column "a" is not drained`},
		{[]string{"plan"}, "no feasible plan"},
		{[]string{"apply"}, "only columns with a live server that are not drained count"},
	} {
		r := command(x.args...)
		require.Equal(t, cli.ExitFailure, r.status, "%s: %s", x.args, r.stderr)
		require.Contains(t, r.stderr, x.want)
	}
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"placement"}, "a command is missing"},
		{[]string{"placement", "shwo"}, "unknown command shwo; did you mean show?"},
		{[]string{"placement", "drain", "--etcd", "a:1", "--collection", "jobs"}, "an argument is missing; write docserviced placement drain"},
		{[]string{"placement", "show"}, "--etcd is missing: give the etcd servers"},
		{[]string{"placement", "show", "--etcd", "a:1"}, "--collection is missing"},
		{[]string{"placement", "show", "--etcd", "a:1", "--collection", "a/b"}, "must not be empty or contain a slash"},
		{[]string{"placement", "show", "--etcd", "http://a:1/x", "--collection", "jobs"}, "want etcd://HOST:PORT"},
		{[]string{"placement", "pause", "--etcd", "a:1", "--collection", "jobs", "--timeout", "0s"}, "--timeout 0s: must be more than 0"},
	} {
		r := run(t.Context(), x.args...)
		require.Equal(t, cli.ExitUsage, r.status, x.args)
		require.Contains(t, r.stderr, x.want)
	}
	for _, name := range []string{"show", "plan", "apply", "pause"} {
		r := run(t.Context(), "placement", name, "--etcd", c.Etcd.Address, "--collection", "other")
		require.Equal(t, cli.ExitFailure, r.status)
		require.Contains(t, r.stderr, "collection other has no placement")
	}
	c.Etcd.Kill()
	r := command("show", "--timeout", "300ms")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stderr, "does not answer within 300ms; is it running there?")
	c.Etcd.Restart(t)
}

// A daemon shows the servers of a collection, also of those that it does not serve.
func TestFleetPage(t *testing.T) {
	c := shardtest.New(t, 4, 60)
	c.Even("a", "b")
	o := testOptions(t, "")
	o.Collections = []server.Collection{{Name: "jobs", Source: "file://" + t.TempDir()}, {Name: "other", Source: "file://" + t.TempDir()}}
	o.source.Etcd = c.Etcd.Address
	d, _ := startTestDaemon(t, o)
	r := servertest.Get(d.HTTPHandler(), "/api/v1/fleet?collection=jobs")
	require.Equal(t, http.StatusOK, r.Code, r.Body)
	var f fleet.Fleet
	require.NoError(t, json.Unmarshal(r.Body.Bytes(), &f))
	require.Len(t, f.Columns, 2)
	r = servertest.Get(d.HTTPHandler(), "/fleet?collection=jobs")
	require.Equal(t, http.StatusOK, r.Code)
	require.Contains(t, r.Body.String(), "Fleet of jobs")
	r = servertest.Get(d.HTTPHandler(), "/api/v1/fleet?collection=other")
	require.Equal(t, http.StatusServiceUnavailable, r.Code)
	require.Contains(t, r.Body.String(), "collection other has no placement: it is not sharded")
}
