package boxcar

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/docservice/server/livepage"
)

// moments returns two statuses of a daemon, two seconds apart.
func moments() (before, now livepage.Status) {
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(seconds int, served uint64, busy bool) livepage.Status {
		return livepage.Status{
			Time: started.Add(time.Duration(seconds) * time.Second), Started: started, Host: "be-1", Ready: true,
			Memory:    livepage.Memory{BudgetBytes: 384 << 20, MemtableBytes: 3 << 20, FilterBytes: 1 << 20, GoHeapBytes: 20 << 20},
			Latencies: []livepage.Latency{{Listener: "boxcar", Method: "Get", Total: served, PerSecond: 1999.6, P50: 31e-6, P99: 210e-6}, {Listener: "http", Method: "Get"}},
			Collections: []livepage.Collection{{
				Name: "jobs", Readiness: livepage.Readiness{Ready: true}, LagBytes: 2048, VisibleAfter: 0.009, Freshness: livepage.Freshness{P99: 1.5}, Canaries: livepage.Freshness{P99: 2.5},
				Gets: livepage.Gets{Found: served, NotFound: served / 1000}, Queue: livepage.Queue{Documents: 63_666}, Faults: []livepage.Fault{},
			}},
			Boxcar: livepage.Boxcar{
				Address: "127.0.0.1:7070", Requests: served, Leases: served / 1000, LowestFree: 2, InFlight: 1, Connections: 1,
				Slots: []livepage.Slot{
					{Number: 1, Client: "fe-1", Address: "10.0.0.7:1", Age: float64(seconds), Requests: 7},
					{Number: 0, Client: "fe-1", Identity: "frontend", Address: "10.0.0.7:1", Age: float64(seconds), Requests: served - 7, Errors: 2, Busy: busy},
				},
				More: 110,
			},
		}
	}
	return at(60, 10_000, false), at(62, 14_000, true)
}

func TestTopFrame(t *testing.T) {
	before, now := moments()
	r := reading{address: "be-1:7071", now: &before}
	clock := time.Date(2026, 1, 2, 14, 3, 7, 0, time.UTC)
	require.Contains(t, strings.Join(frame([]reading{r}, clock), "\n"), "boxcar 127.0.0.1:7070: - requests/s", "one moment has no rates")
	r.before, r.now = &before, &now
	require.Equal(t, `docserviced be-1, ready, up 1 min 2 s, 14:03:07
boxcar 127.0.0.1:7070: 2,000 requests/s, 0 errors/s, 0 refused/s, 1 in flight; 112 slots, lowest free 2, 2 leases/s; 1 connections
memory: memtables 3 MiB, filters 1 MiB, merges 0 B, of 384 MiB; Go holds 20 MiB

collection  documents  found/s  not found/s  unavailable/s  behind  visible after  p99 of 5 min  from source  faults
jobs        63,666     2,000    2            0              2 KiB   9.0 ms         1.5 s         2.5 s        0

listener  method  per second  p50    p99
boxcar    Get     2,000       31 µs  210 µs

slot  client            address     age        requests  per second  errors  state
0     fe-1 as frontend  10.0.0.7:1  1 min 2 s  13,993    2,000       2       busy
1     fe-1              10.0.0.7:1  1 min 2 s  7         0           0       free
and 110 more`, strings.Join(frame([]reading{r}, clock), "\n"))

	draining := now
	draining.Boxcar.Draining = true
	other := reading{address: "be-2:7071", before: &before, now: &draining}
	silent := reading{address: "be-3:7071", err: http.ErrServerClosed}
	require.Equal(t, `3 daemons, 14:03:07

daemon     state                                 requests/s  p99     in flight  slots  errors/s  refused/s  behind  visible after  p99 of 5 min  from source
be-1:7071  ready                                 2,000       210 µs  1          112    0         0          2 KiB   9.0 ms         1.5 s         2.5 s
be-2:7071  draining                              2,000       210 µs  1          112    0         0          2 KiB   9.0 ms         1.5 s         2.5 s
be-3:7071  does not answer: http: Server closed`, strings.Join(frame([]reading{r, other, silent}, clock), "\n"))
	require.Equal(t, "1 daemon, 14:03:07", frame([]reading{silent}, clock)[0])
}

func TestTopFit(t *testing.T) {
	lines := []string{"short", "31 µs and more", "below"}
	require.Equal(t, []string{"short", "31 µs"}, fit(lines, 5, 2))
	require.Equal(t, lines, fit(lines, 80, 24))
	require.Empty(t, fit(lines, 0, 0))
}

// statusServer answers with the statuses one after the other, repeating the last, and calls
// asked with the number of the request.
func statusServer(t *testing.T, asked func(n int), statuses ...livepage.Status) (address string) {
	t.Helper()
	var mu sync.Mutex
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		status := statuses[min(n, len(statuses)-1)]
		n++
		asked(n)
		if r.URL.Path != "/api/v1/status" {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(status)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func TestTopOnce(t *testing.T) {
	before, now := moments()
	address := statusServer(t, func(int) {}, before, now)
	var out bytes.Buffer
	env := &cli.Env{Stdout: &out, Stderr: &out, Now: time.Now}
	require.Equal(t, cli.ExitOK, cli.Run(t.Context(), New, env, []string{"top", "--http", address, "--once"}), out.String())
	require.Contains(t, out.String(), ": 2,000 requests/s,")
	require.NotContains(t, out.String(), "\x1b", "for a pipe")

	out.Reset()
	require.Equal(t, cli.ExitFailure, cli.Run(t.Context(), New, env, []string{"top", "--http", address + ",127.0.0.1:1", "--once"}))
	require.Contains(t, out.String(), "\n127.0.0.1:1")
	require.Contains(t, out.String(), "boxcar: 127.0.0.1:1 does not answer: ")

	out.Reset()
	require.Equal(t, cli.ExitFailure, cli.Run(t.Context(), New, env, []string{"top", "--http", address + ",127.0.0.1:1", "--json"}))
	lines := strings.Split(out.String(), "\n")
	require.Contains(t, lines[0], `{"daemon":"`+address+`","status":{"time":"2026-01-02T03:05:07Z",`)
	require.Regexp(t, `^\{"daemon":"127.0.0.1:1","error":".*"\}$`, lines[1])

	out.Reset()
	require.Equal(t, cli.ExitUsage, cli.Run(t.Context(), New, env, []string{"top", "--http", address, "--interval", "10ms", "--token-file", "t"}))
	require.Equal(t, "boxcar: --interval 10ms: must be at least 1s; --http "+address+" is plain text, over which no token or certificate is sent; "+
		"write https://HOST:PORT; see boxcar top --help\n", out.String())
}

// TestTopOnATerminal draws each frame over the last one, within the terminal, until it is
// stopped, and restores the cursor.
func TestTopOnATerminal(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	before, now := moments()
	restarted := before
	restarted.Started = now.Time
	address := statusServer(t, func(n int) {
		if n == 5 {
			end()
		}
	}, before, before, now, restarted)
	var out bytes.Buffer
	o := top{
		addresses: []string{address}, interval: time.Millisecond, timeout: time.Minute,
		screen: screen{size: func() (width, height int, ok bool) { return 40, 3, true }},
	}
	require.NoError(t, o.run(ctx, &cli.Env{Stdout: &out, Now: time.Now}))
	drawn, ok := strings.CutPrefix(out.String(), hideCursor)
	require.True(t, ok)
	drawn, ok = strings.CutSuffix(drawn, showCursor)
	require.True(t, ok)
	frames := strings.Split(drawn, goHome)[1:]
	require.Len(t, frames, 4)
	for i, rate := range []string{": - req", ": - req", ": 2,000 req", ": - req"} { // the same status again, or that of another process, has no rate
		require.Contains(t, frames[i], rate)
		lines := strings.Split(frames[i], "\r\n")
		require.Len(t, lines, 3)
		require.Equal(t, "memory: memtables 3 MiB, filters 1 MiB, "+clearRest+clearBelow, lines[2])
	}
}

// TestTopShowsResidency: a part whose residency is unknown has no line.
func TestTopShowsResidency(t *testing.T) {
	_, now := moments()
	now.Collections[0].Queue.Mapped = &livepage.Mapped{Bytes: 4 << 30, ResidentRatio: 0.125}
	now.Collections[0].Queue.ColdReads = &livepage.ColdReads{Total: 9000, PerSecond: 1234.4, P50: 0.0004, P99: 0.0021}
	now.Collections[0].Index.ColdReads = &livepage.ColdReads{}
	r := reading{address: "be-1:7071", now: &now}
	lines := strings.Join(frame([]reading{r}, now.Time), "\n")
	require.Contains(t, lines, "\njobs, queue: 12.5 % of 4 GiB in memory; cold reads: 1,234/s, p50 400 µs, p99 2.1 ms\n")
	require.NotContains(t, lines, "jobs, index")
}

func TestTopShowsManifests(t *testing.T) {
	_, now := moments()
	pinned := now.Time
	now.Collections[0].Manifest = &livepage.Manifest{
		Announced: 4, Target: 2, Served: 3, PinnedBy: "anna", PinReason: "typo", PinnedAt: &pinned,
		FetchedBytes: 1 << 20, FetchBytes: 2 << 20, Error: "the store is away",
	}
	r := reading{address: "be-1:7071", now: &now}
	lines := strings.Join(frame([]reading{r}, now.Time), "\n")
	require.Contains(t, lines, "jobs: manifest 3 is served, 4 is announced, 2 is pinned by anna (typo); fetched 1 MiB of 2 MiB for 2\njobs: the store is away\n")
	require.Contains(t, lines, "be-1, ready, pinned, up")
}
