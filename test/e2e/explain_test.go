package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice/explain"
	"docstore/internal/testprocess"
)

// TestExplain runs two daemons with copies of a queue. One copy ends, a document is deleted, and a
// daemon dies: boxcar explain states which.
func TestExplain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	appendLines := func(lines string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(binaries, "docstore-updater"), "append", "--queue", source, "--quiet")
		cmd.Stdin = strings.NewReader(lines)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	appendLines(`{"id":"a"}` + "\n" + `{"id":"b"}` + "\n")
	var daemons []*daemon
	var syncs []*testprocess.Command
	for _, name := range []string{"one", "two"} {
		queue := filepath.Join(dir, name)
		require.NoError(t, os.Mkdir(queue, 0o755))
		syncs = append(syncs, testprocess.Start(t, exec.Command(syncScript, "--interval", "0.2", source, queue)))
		d := startDaemon(t, queue, filepath.Join(dir, "index-"+name))
		d.waitReady(t)
		daemons = append(daemons, d)
	}
	explained := func(id string) (report explain.Report, status int) {
		t.Helper()
		cmd := exec.Command(filepath.Join(binaries, "boxcar"), "explain", "--servers", daemons[0].boxcar+","+daemons[1].boxcar,
			"--collection", collectionName, "--timeout", "5s", "--json", id)
		out, err := cmd.Output()
		require.NoError(t, json.Unmarshal(out, &report), "%v", err)
		return report, cmd.ProcessState.ExitCode()
	}
	verdicts := func(r explain.Report) (list []explain.Verdict) {
		for _, s := range r.Servers {
			list = append(list, s.Verdict)
		}
		return list
	}
	for _, d := range daemons {
		d.waitDocument(t, "a", []byte(`{"id":"a"}`))
	}
	report, status := explained("a")
	require.Equal(t, explain.Served, report.Verdict, report.Reason)
	require.Zero(t, status)

	// The copy of the second daemon ends.
	syncs[1].Kill()
	appendLines(`{"id":"late"}` + "\n" + `{"id":"b","_delete":true}` + "\n")
	daemons[0].waitDocument(t, "b", nil)
	report, status = explained("late")
	require.Equal(t, explain.Disagree, report.Verdict, report.Reason)
	require.Equal(t, []explain.Verdict{explain.Served, explain.Behind}, verdicts(report))
	require.Equal(t, 1, status)
	report, _ = explained("b")
	require.Equal(t, []explain.Verdict{explain.Deleted, explain.Behind}, verdicts(report))
	require.Contains(t, report.Servers[1].Reason, "the older version ")

	// The second daemon dies.
	daemons[1].Kill()
	report, status = explained("b")
	require.Equal(t, explain.Deleted, report.Verdict, report.Reason)
	require.Equal(t, []explain.Verdict{explain.Deleted, explain.NoAnswer}, verdicts(report))
	require.Contains(t, report.Reason, "; no answer from 1 of 2 servers")
	require.Equal(t, 1, status)
	report, status = explained("late")
	require.Equal(t, explain.Served, report.Verdict, report.Reason)
	require.Zero(t, status)
	report, _ = explained("never")
	require.Equal(t, explain.Absent, report.Verdict, report.Reason)
}

// A server of a published collection is pinned, and then rolled back, before the manifest with a
// document.
func TestExplainPublished(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	queue, url := filepath.Join(dir, "queue"), "file://"+filepath.Join(dir, "bucket")
	updater := func(stdin string, args ...string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(binaries, "docstore-updater"), args...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
	}
	announce := func(line string) {
		t.Helper()
		updater(line, "append", "--queue", queue, "--quiet")
		updater("", "publish", "--queue", queue, "--bucket", url, "--quiet")
		updater("", "validate", "--bucket", url, "--quiet")
		updater("", "announce", "--bucket", url)
	}
	announce(`{"id":"a"}`)
	d := startDaemon(t, url, filepath.Join(dir, "index"))
	d.waitReady(t)
	// awaits repeats both commands until they agree with the verdict: the server polls the bucket.
	awaits := func(verdict explain.Verdict) {
		t.Helper()
		require.Eventually(t, func() bool {
			var server, source struct{ Verdict explain.Verdict }
			out, _ := exec.Command(filepath.Join(binaries, "boxcar"), "explain", "--servers", d.boxcar, "--collection", collectionName, "--json", "b").Output()
			require.NoError(t, json.Unmarshal(out, &server))
			out, _ = exec.Command(filepath.Join(binaries, "docstore-updater"), "explain", "b", "--queue", queue, "--bucket", url, "--json").Output()
			require.NoError(t, json.Unmarshal(out, &source))
			return server.Verdict == verdict && (source.Verdict == verdict || verdict == explain.Served && source.Verdict == "announced")
		}, time.Minute, testprocess.PollInterval, verdict)
	}
	updater("", "pin", "--bucket", url, "--to", "1")
	announce(`{"id":"b"}`)
	awaits(explain.Pinned)
	updater("", "unpin", "--bucket", url)
	awaits(explain.Served)
	updater("", "rollback", "--bucket", url, "--to", "1")
	awaits(explain.RolledBack)
	d.Stop(t)
}
