package main

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

// Whose fault it is follows from what was found, in each way that things go wrong.
func TestProbeVerdicts(t *testing.T) {
	well := probed{Server: "a", Ready: true, FreshSeconds: 1, Position: position{2, 0, 0}}
	other := well
	other.Server, other.FreshSeconds = "b", 2
	with := func(change func(*probed)) probed {
		s := other
		s.FreshSeconds = 0
		change(&s)
		return s
	}
	nothing := func(*probed) {}
	dead := with(func(s *probed) { s.Unreachable = "connection refused" })
	for name, c := range map[string]struct {
		found       findings
		whose, says string
	}{
		"all is well":      {findings{Wrote: true, Servers: []probed{well, other}}, "", "2 of 2 servers; the canary was appended in 0.00 s, and served by the last, b, after 2.00 s"},
		"nothing written":  {findings{Servers: []probed{with(nothing), well}}, "", "2 of 2 servers"},
		"no server listed": {findings{}, "them", "no server is listed"},
		"none reached":     {findings{Wrote: true, Servers: []probed{dead, dead}}, "me", "none of 2 servers can be reached from here (connection refused)"},
		"one is dead":      {findings{Wrote: true, Servers: []probed{well, dead}}, "them", "1 of 2 servers: b: does not answer: connection refused"},
		"one is draining": {findings{Servers: []probed{well, with(func(s *probed) { s.Draining, s.Unreachable = true, "draining" })}},
			"them", "1 of 2 servers: b: draining: it gives out no slots; boxcar undrain --servers b has it serve again"},
		"one is draining, one is dead": {findings{Servers: []probed{dead, with(func(s *probed) { s.Draining, s.Unreachable = true, "draining" })}},
			"them", "2 of 2 servers: b: does not answer: connection refused; b: draining: "},
		"the command failed": {findings{Wrote: true, AppendError: "exit status 1: locked", Servers: []probed{with(nothing), with(nothing)}},
			"ingest", "could not be appended: exit status 1: locked"},
		"it reached nobody": {findings{Wrote: true, Servers: []probed{with(nothing), with(nothing)}}, "ingest", "has reached no server"},
		"an old copy": {findings{Wrote: true, Servers: []probed{well, with(func(s *probed) { s.Position = position{1, 9, 9} })}},
			"them", "this copy of the queue ends at 1/9/9, another server's at 2/0/0"},
		"an index that is behind": {findings{Wrote: true, Servers: []probed{well, with(func(s *probed) { s.LagBytes = 2048 })}}, "them", "the index is 2 KiB behind"},
		"all indexes are behind":  {findings{Wrote: true, Servers: []probed{with(func(s *probed) { s.LagBytes = 2048 })}}, "them", "the index is 2 KiB behind"},
		"a tail that stopped":     {findings{Servers: []probed{well, with(func(s *probed) { s.Stopped = "7.seg: bad" })}}, "them", "cannot be read on: 7.seg: bad"},
		"not ready":               {findings{Servers: []probed{well, with(func(s *probed) { s.Ready = false })}}, "them", "has not read its queue"},
		"no such collection":      {findings{Servers: []probed{with(func(s *probed) { s.StatsError = "no collection jbos here" })}}, "them", "no collection jbos"},
		"unavailable":             {findings{Servers: []probed{with(func(s *probed) { s.GetError = "unavailable" })}}, "them", "cannot be fetched: unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			c.found.conclude()
			require.Equal(t, c.whose, c.found.Whose, c.found.Verdict)
			require.Contains(t, c.found.Verdict, c.says)
		})
	}
}

// Without --append the last canary is looked at, and with one that cannot be appended
// nothing is waited for. test/e2e sends canaries the whole way.
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
	require.Contains(t, r.stderr, "me: the list of servers cannot be had: ")
	require.Equal(t, cli.ExitUsage, run(t.Context(), "", "probe", "--collection", "jobs", "--timeout", "0s").status)

	require.Equal(t, cli.ExitOK, run(t.Context(), "", "drain", "--servers", address).status)
	r = run(t.Context(), "", "probe", "--servers", address, "--collection", "jobs", "--json", "--timeout", "1h")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Equal(t, "them: 1 of 1 server: "+address+": draining: it gives out no slots; boxcar undrain --servers "+address+" has it serve again\n", r.stderr)
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &found))
	require.True(t, found.Servers[0].Draining)
}

// A canary that a server's own queue gets is served after a while, which is told.
func TestProbeMeasuresFreshness(t *testing.T) {
	queueDir := newQueue(t, map[string]string{"a": "{}"})
	address := serve(t, queueDir)
	log := filepath.Join(t.TempDir(), "log")
	done := make(chan error, 1)
	go func() { done <- appendWhatComes(t, log, queueDir) }()
	r := run(t.Context(), "", "probe", "--servers", address, "--collection", "jobs", "--append", "cat > "+log+".next && mv "+log+".next "+log)
	require.NoError(t, <-done)
	require.Equal(t, cli.ExitOK, r.status, r.stderr+r.stdout)
	require.Regexp(t, `served after \d+\.\d\d s`, r.stdout)
}

// appendWhatComes appends the document in a file once that is there.
func appendWhatComes(t *testing.T, path, queueDir string) error {
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

// waitForFile returns what is in a file once it is there.
func waitForFile(t *testing.T, path string) []byte {
	for t.Context().Err() == nil {
		if content, err := os.ReadFile(path); err == nil {
			return content
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}
