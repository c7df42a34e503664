package boxcar

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/queue"
)

// The verdict for each kind of fault.
func TestProbeVerdicts(t *testing.T) {
	well := probeResult{Server: "a", Ready: true, FreshSeconds: 1, Position: position{2, 0, 0}}
	other := well
	other.Server, other.FreshSeconds = "b", 2
	with := func(change func(*probeResult)) probeResult {
		s := other
		s.FreshSeconds = 0
		change(&s)
		return s
	}
	nothing := func(*probeResult) {}
	dead := with(func(s *probeResult) { s.Unreachable = "connection refused" })
	for name, c := range map[string]struct {
		found       findings
		whose, says string
	}{
		"all is well":      {findings{Wrote: true, Servers: []probeResult{well, other}}, "", "2 of 2 servers; the canary was appended in 0.00 s, and served by the last, b, after 2.00 s"},
		"nothing written":  {findings{Servers: []probeResult{with(nothing), well}}, "", "2 of 2 servers"},
		"no server listed": {findings{}, "them", "no server is listed"},
		"none reached":     {findings{Wrote: true, Servers: []probeResult{dead, dead}}, "me", "none of 2 servers can be reached from here (connection refused)"},
		"one is dead":      {findings{Wrote: true, Servers: []probeResult{well, dead}}, "them", "1 of 2 servers: b: does not answer: connection refused"},
		"one is draining": {findings{Servers: []probeResult{well, with(func(s *probeResult) { s.Draining, s.Unreachable = true, "draining" })}},
			"them", "1 of 2 servers: b: draining: it gives out no slots; run boxcar undrain --servers b"},
		"one is draining, one is dead": {findings{Servers: []probeResult{dead, with(func(s *probeResult) { s.Draining, s.Unreachable = true, "draining" })}},
			"them", "2 of 2 servers: b: does not answer: connection refused; b: draining: "},
		"the command failed": {findings{Wrote: true, AppendError: "exit status 1: locked", Servers: []probeResult{with(nothing), with(nothing)}},
			"ingest", "could not be appended: exit status 1: locked"},
		"it reached nobody": {findings{Wrote: true, Servers: []probeResult{with(nothing), with(nothing)}}, "ingest", "is on no server"},
		"an old copy": {findings{Wrote: true, Servers: []probeResult{well, with(func(s *probeResult) { s.Position = position{1, 9, 9} })}},
			"them", "this copy of the queue ends at 1/9/9, another server's at 2/0/0"},
		"an index that is behind": {findings{Wrote: true, Servers: []probeResult{well, with(func(s *probeResult) { s.LagBytes = 2048 })}}, "them", "the index is 2 KiB behind"},
		"all indexes are behind":  {findings{Wrote: true, Servers: []probeResult{with(func(s *probeResult) { s.LagBytes = 2048 })}}, "them", "the index is 2 KiB behind"},
		"a tail that stopped":     {findings{Servers: []probeResult{well, with(func(s *probeResult) { s.Stopped = "7.seg: bad" })}}, "them", "reading its queue failed: 7.seg: bad"},
		"not ready":               {findings{Servers: []probeResult{well, with(func(s *probeResult) { s.Ready = false })}}, "them", "has not read its queue"},
		"no such collection":      {findings{Servers: []probeResult{with(func(s *probeResult) { s.StatsError = "no collection jbos here" })}}, "them", "no collection jbos"},
		"unavailable":             {findings{Servers: []probeResult{with(func(s *probeResult) { s.GetError = "unavailable" })}}, "them", "fetching the canary failed: unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			c.found.conclude()
			require.Equal(t, c.whose, c.found.Whose, c.found.Verdict)
			require.Contains(t, c.found.Verdict, c.says)
		})
	}
}

// Without --append the last canary is checked; if the command fails, probe does not wait.
// test/e2e sends canaries end to end.
func TestProbe(t *testing.T) {
	address := serve(t, newQueue(t, map[string]string{"docstore-canary": `{"id":"docstore-canary","nonce":"n","sent":"2026-11-21T10:00:00Z","_expires":"2026-11-22T10:00:00Z"}`}))
	r := run(t.Context(), "", "probe", "--servers", address, "--collection", "jobs")
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	require.Regexp(t, `(?m)^`+address+` +\d+\.\d+ ms +\d+\.\d+ ms +-?\d+h\S+ old +0 B +well$`, r.stdout)
	require.Contains(t, r.stdout, "\nwell: 1 of 1 server\n")

	r = run(t.Context(), "", "probe", "--servers", address, "--collection", "jobs", "--json", "--append", "cat; echo no room >&2; exit 3")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Regexp(t, `^ingest: the canary could not be appended: exit status 3: \{"id":"docstore-canary","nonce":"\w+","sent":"[^"]+","_expires":"[^"]+"\} no room\n$`, r.stderr)
	var found findings
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &found))
	require.Equal(t, "ingest", found.Whose)
	require.True(t, found.Servers[0].Ready)

	r = run(t.Context(), "", "probe", "--servers", address, "--collection", "resumes")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stderr, "them: 1 of 1 server: "+address+": ")
	require.Contains(t, r.stderr, "resumes")
	r = run(t.Context(), "", "probe", "--servers", "127.0.0.1:1", "--collection", "jobs", "--timeout", "500ms")
	require.Contains(t, r.stderr, "me: none of 1 server can be reached from here")
	r = run(t.Context(), "", "probe", "--servers", "file:/nowhere/servers", "--collection", "jobs", "--timeout", "500ms")
	require.Contains(t, r.stderr, "me: getting the list of servers failed: ")
	require.Equal(t, cli.ExitUsage, run(t.Context(), "", "probe", "--collection", "jobs", "--timeout", "0s").status)

	r = run(t.Context(), "", "drain", "--servers", address)
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	r = run(t.Context(), "", "probe", "--servers", address, "--collection", "jobs", "--json", "--timeout", "1h")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Equal(t, "them: 1 of 1 server: "+address+": draining: it gives out no slots; run boxcar undrain --servers "+address+"\n", r.stderr)
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &found))
	require.True(t, found.Servers[0].Draining)
}

// A canary that is appended to a server's queue is served, and its delay is reported.
func TestProbeMeasuresFreshness(t *testing.T) {
	queueDir := newQueue(t, map[string]string{"a": "{}"})
	address := serve(t, queueDir)
	log := filepath.Join(t.TempDir(), "log")
	done := make(chan error, 1)
	go func() { done <- appendFileOnceWritten(t, log, queueDir) }()
	r := run(t.Context(), "", "probe", "--servers", address, "--collection", "jobs", "--append", "cat > "+log+".next && mv "+log+".next "+log)
	require.NoError(t, <-done)
	require.Equal(t, cli.ExitOK, r.status, r.stderr+r.stdout)
	require.Regexp(t, `served after \d+\.\d\d s`, r.stdout)
}

// appendFileOnceWritten appends the document in a file once the file exists.
func appendFileOnceWritten(t *testing.T, path, queueDir string) error {
	document := waitForFile(t, path)
	writer, err := queue.OpenWriter(queueDir, nil)
	if err != nil {
		return err
	}
	if _, err := writer.Append([]byte("docstore-canary"), document); err != nil {
		return err
	}
	return writer.Close()
}

// waitForFile returns the content of a file once it exists.
func waitForFile(t *testing.T, path string) []byte {
	for t.Context().Err() == nil {
		if content, err := os.ReadFile(path); err == nil {
			return content
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}
