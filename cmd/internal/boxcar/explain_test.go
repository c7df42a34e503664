package boxcar

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/docservice/explain"
	"docstore/docservice/placement"
	"docstore/docservice/server"
	"docstore/internal/servertest"
	"docstore/queue/shard"
)

// startServer starts a server of a queue and returns it when it is ready.
func startServer(t *testing.T, queueDir string) *server.Server {
	t.Helper()
	s, err := server.Start(server.Options{
		Collections: []server.Collection{{Name: "jobs", Source: queueDir}}, DataDir: filepath.Join(t.TempDir(), "data"),
		Boxcar: "127.0.0.1:0", HTTP: server.HTTP{Address: "127.0.0.1:0"}, Memory: 64 << 20,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop(time.Second)) })
	require.NoError(t, s.Collections()[0].WaitReady(t.Context()))
	return s
}

// Two servers, of which one has an older copy of the queue.
func TestExplain(t *testing.T) {
	queueDir, old := t.TempDir(), t.TempDir()
	servertest.Fill(t, queueDir, "a", "{}", "b", "{}", "deleted later", "{}")
	require.NoError(t, os.CopyFS(old, os.DirFS(queueDir)))
	servertest.Fill(t, queueDir, "b", `{"again":true}`, "new", "{}", "deleted later", "")
	current, behind := startServer(t, queueDir), startServer(t, old)
	const dead = "127.0.0.1:1"
	ask := func(servers, id string) (explain.Report, result) {
		r := run(t.Context(), "", "explain", "--servers", servers, "--collection", "jobs", "--timeout", "1s", "--json", id)
		var report explain.Report
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &report), r.stderr)
		return report, r
	}
	one, two := current.BoxcarAddress(), behind.BoxcarAddress()
	for _, test := range []struct {
		servers, id string
		verdict     explain.Verdict
		rows        []explain.Verdict
	}{
		{one + "," + two, "a", explain.Served, []explain.Verdict{explain.Served, explain.Served}},
		{one + "," + two, "b", explain.Disagree, []explain.Verdict{explain.Served, explain.Behind}},
		{one + "," + two, "new", explain.Disagree, []explain.Verdict{explain.Served, explain.Behind}},
		{one + "," + two, "deleted later", explain.Disagree, []explain.Verdict{explain.Deleted, explain.Behind}},
		{one, "deleted later", explain.Deleted, []explain.Verdict{explain.Deleted}},
		{one + "," + two, "never", explain.Absent, []explain.Verdict{explain.Absent, explain.Absent}},
		{one + "," + dead, "a", explain.Served, []explain.Verdict{explain.Served, explain.NoAnswer}},
		{dead, "a", explain.NoAnswer, []explain.Verdict{explain.NoAnswer}},
	} {
		report, r := ask(test.servers, test.id)
		require.Equal(t, test.verdict, report.Verdict, "%s: %s", test.id, report.Reason)
		for i, row := range report.Servers {
			require.Equal(t, test.rows[i], row.Verdict, "%s: %s", test.id, row.Reason)
		}
		if test.verdict == explain.Served {
			require.Equal(t, cli.ExitOK, r.status)
			continue
		}
		require.Equal(t, cli.ExitFailure, r.status)
		require.Equal(t, string(test.verdict)+": "+report.Reason+"\n", r.stderr)
	}

	// A draining server answers, and the table has the same.
	current.Boxcar().Drain()
	r := run(t.Context(), "", "explain", "--servers", one, "--collection", "jobs", "a")
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	require.Regexp(t, `(?s)^server +version +column +state .*\n`+one+` +\S+ +- +ready +\d+/\d+/\d+ +1/\d+/0 +- +- +- +0 +served\n\n`+one+` served: version .*\n\nserved: version`, r.stdout)
	r = run(t.Context(), "", "explain", "--servers", two, "--collection", "jobs", "new")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stdout, "\n  docstore-updater explain new --queue DIR\n")

	r = run(t.Context(), "", "explain", "--servers", one, "--collection", "resumes", "a")
	require.Equal(t, "no_collection: the server has no collection \"resumes\"\n", r.stderr)
	r = run(t.Context(), "", "explain", "--servers", serve(t, old), "--collection", "jobs", "a")
	require.Contains(t, r.stderr, "its version does not have explain")
	require.Equal(t, cli.ExitUsage, run(t.Context(), "", "explain", "--etcd", "a:1", "--servers", "b:1", "--collection", "jobs", "a").status)
}

// The servers of the columns of the shard are asked.
func TestHoldersOfAShard(t *testing.T) {
	layout := shard.Layout{Shards: 2}
	m := &placement.Map{Epoch: 7, Layout: layout, Shards: []placement.Place{{Column: "a", Next: "b"}, {Column: "c"}}}
	id := "x"
	for layout.ShardString(id) != 0 {
		id += "x"
	}
	q := explain.Question{ID: id}
	addHolders(&q, m, []placement.ServerState{{Address: "a1", Column: "a"}, {Address: "b1", Column: "b"}, {Address: "c1", Column: "c"}, {Address: "new"}})
	require.Equal(t, &explain.Placement{Epoch: 7, Column: "a", Next: "b"}, q.Placement)
	require.Equal(t, []explain.Server{{Address: "a1"}, {Address: "b1", Next: true}}, q.Servers)
}
