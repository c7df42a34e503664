package boxcar

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/cmd/internal/cli"
	"docstore/docservice/collection"
	"docstore/queue"
)

func TestMain(m *testing.M) {
	_ = os.Setenv("XDG_CACHE_HOME", os.DevNull) // no test uses the cache of the user
	goleak.VerifyTestMain(m)
}

type result struct {
	status         int
	stdout, stderr string
}

func run(ctx context.Context, stdin string, args ...string) result {
	var stdout, stderr bytes.Buffer
	env := &cli.Env{Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr}
	status := cli.Run(ctx, New, env, args)
	return result{status, stdout.String(), stderr.String()}
}

// serve serves the documents of a queue until the test ends and returns the
// address.
func serve(t *testing.T, queueDir string) string {
	t.Helper()
	c, err := collection.Open("jobs", queueDir, filepath.Join(t.TempDir(), "index"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	require.NoError(t, c.WaitReady(t.Context()))
	return serveHandler(t, collection.NewService(c).Handle)
}

// serveHandler serves until the test ends and returns the address.
func serveHandler(t *testing.T, h boxcarrpc.Handler) string { return serveWith(t, h, nil) }

func serveWith(t *testing.T, h boxcarrpc.Handler, o *boxcarrpc.ServerOptions) string {
	t.Helper()
	server := boxcarrpc.NewServer(h, o)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, boxcarrpc.ErrServerClosed)
	})
	return listener.Addr().String()
}

func newQueue(t *testing.T, documents map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	writer, err := queue.OpenWriter(dir, nil)
	require.NoError(t, err)
	for id, document := range documents {
		_, err := writer.Append([]byte(id), []byte(document))
		require.NoError(t, err)
	}
	require.NoError(t, writer.Close())
	return dir
}

func TestGet(t *testing.T) {
	address := serve(t, newQueue(t, map[string]string{"a": `{"id":"a"}`, "lines": "x\ny\x00"}))
	for _, test := range []struct {
		id     string
		status int
		stdout string
		stderr string
	}{
		{"a", cli.ExitOK, `{"id":"a"}` + "\n", ""},
		{"lines", cli.ExitOK, "x\ny\x00\n", ""},
		{"never", cli.ExitFailure, "", "not found: collection jobs has no document \"never\"\n"},
	} {
		r := run(t.Context(), "", "get", "--servers", address, "--collection", "jobs", test.id)
		require.Equal(t, result{test.status, test.stdout, test.stderr}, r)
	}

	r := run(t.Context(), "", "get", "--servers", address, "--collection", "resumes", "a")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stderr, "resumes")
	r = run(t.Context(), "", "get", "--servers", address, "--collection", "jobs", strings.Repeat("x", queue.MaxIDBytes+1))
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stderr, "invalid id: want 1 to 1024 bytes")
}

func TestMget(t *testing.T) {
	const picture = "\x89PNG\r\n"
	address := serve(t, newQueue(t, map[string]string{
		"a": `{"id":"a", "x": 1}`, "text": "hello", "picture": picture, "pretty": "{\n}", "latin1": "\"\xe9\"", "cr": "{}\r", "<&>": "1",
	}))
	want := []string{
		`{"id":"picture","found":true,"document_base64":"` + base64.StdEncoding.EncodeToString([]byte(picture)) + `"}`,
		`{"id":"a","found":true,"document":{"id":"a", "x": 1}}`,
		`{"id":"never","found":false}`,
		`{"id":"text","found":true,"document_base64":"aGVsbG8="}`,
		`{"id":"pretty","found":true,"document_base64":"ewp9"}`,
		`{"id":"latin1","found":true,"document_base64":"` + base64.StdEncoding.EncodeToString([]byte("\"\xe9\"")) + `"}`,
		`{"id":"cr","found":true,"document":{}` + "\r}",
		`{"id":"<&>","found":true,"document":1}`,
		`{"id":"a","found":true,"document":{"id":"a", "x": 1}}`,
	}
	ids := []string{"picture", "a", "never", "text", "pretty", "latin1", "cr", "<&>", "a"}
	expected := result{cli.ExitOK, strings.Join(want, "\n") + "\n", ""}
	require.Equal(t, expected, run(t.Context(), "", append([]string{"mget", "--servers", address, "--collection", "jobs"}, ids...)...))
	require.Equal(t, expected, run(t.Context(), strings.Join(ids, "\n"), "mget", "--servers", address, "--collection", "jobs", "-"))
	require.Equal(t, result{}, run(t.Context(), "", "mget", "--servers", address, "--collection", "jobs", "-"))

	r := run(t.Context(), "a\n"+strings.Repeat("x", queue.MaxIDBytes+1)+"\n", "mget", "--servers", address, "--collection", "jobs", "-")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Equal(t, "standard input:2: an id has at most 1024 bytes; write one id per line\n", r.stderr)
}

// TestMgetManyBatches fetches more ids than fit into a batch, in order.
func TestMgetManyBatches(t *testing.T) {
	documents := make(map[string]string)
	var ids strings.Builder
	for i := range 2*batchIDs + 7 {
		id := fmt.Sprint(i)
		documents[id] = `{"n":` + id + `}`
		fmt.Fprintln(&ids, id)
	}
	address := serve(t, newQueue(t, documents))
	r := run(t.Context(), ids.String(), "mget", "--servers", address, "--collection", "jobs", "-")
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	lines := strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n")
	require.Len(t, lines, len(documents))
	for i, text := range lines {
		var line struct {
			ID       string
			Document struct{ N int }
		}
		require.NoError(t, json.Unmarshal([]byte(text), &line))
		require.Equal(t, fmt.Sprint(i), line.ID)
		require.Equal(t, i, line.Document.N)
	}
}

func TestScan(t *testing.T) {
	documents := map[string]string{"a": `{"n":1}`, "b-1": "text", "b-\xff": "{}"}
	for i := range 1500 { // more than a page
		documents[fmt.Sprintf("c-%04d", i)] = "{}"
	}
	address := serve(t, newQueue(t, documents))
	scan := func(args ...string) result {
		return run(t.Context(), "", append([]string{"scan", "--servers", address, "--collection", "jobs"}, args...)...)
	}
	ok := func(lines ...string) result { return result{cli.ExitOK, strings.Join(append(lines, ""), "\n"), ""} }
	require.Equal(t, ok(`{"id":"b-1","found":true,"document_base64":"dGV4dA=="}`, `{"id_base64":"Yi3/","found":true,"document":{}}`), scan("--prefix", "b-"))
	require.Equal(t, ok(`{"id":"a"}`, `{"id":"b-1"}`), scan("--ids", "--limit", "2"))
	require.Equal(t, ok(`{"id":"c-0007"}`), scan("--ids", "--prefix", "c-", "--after", "c-0006", "--limit", "1"))
	require.Equal(t, result{}, scan("--prefix", "none"))
	r := scan("--prefix", "c-")
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	lines := strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n")
	require.Len(t, lines, 1500)
	for i, line := range lines {
		require.Equal(t, fmt.Sprintf(`{"id":"c-%04d","found":true,"document":{}}`, i), line)
	}
	require.Len(t, strings.Split(scan("--ids", "--limit", "1200").stdout, "\n"), 1201)
}

// Scans, and on request the calls of bench, have the priority of batch; others do not.
func TestPriorities(t *testing.T) {
	c, err := collection.Open("jobs", newQueue(t, map[string]string{"a": "{}"}), filepath.Join(t.TempDir(), "index"), nil)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.WaitReady(t.Context()))
	var batch, interactive atomic.Int64
	count := func(next boxcarrpc.Handler) boxcarrpc.Handler {
		return func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
			if boxcarrpc.IsBatch(ctx) {
				batch.Add(1)
			} else {
				interactive.Add(1)
			}
			return next(ctx, method, request, dst)
		}
	}
	address := serveWith(t, collection.NewService(c).Handle, &boxcarrpc.ServerOptions{Interceptors: []func(boxcarrpc.Handler) boxcarrpc.Handler{count}})
	for command, isBatch := range map[string]bool{
		"scan --collection jobs":                                       true,
		"get --collection jobs a":                                      false,
		"mget --collection jobs a":                                     false,
		"bench --duration 20ms --warmup 0s --rate 1000 --json":         false,
		"bench --duration 20ms --warmup 0s --rate 1000 --json --batch": true,
	} {
		batch.Store(0)
		interactive.Store(0)
		r := run(t.Context(), "", append(strings.Fields(command), "--servers", address)...)
		require.Equal(t, cli.ExitOK, r.status, r.stderr)
		require.Equal(t, isBatch, batch.Load() > 0, command)
		require.Equal(t, !isBatch, interactive.Load() > 0, command)
	}
}

// TestUnavailable: a damaged document is not reported as not found.
func TestUnavailable(t *testing.T) {
	queueDir := newQueue(t, map[string]string{"a": `{"id":"a"}`, "bad": `{"x":"bbbbbbbb"}`})
	damage(t, queueDir, "bbbbbbbb")
	address := serve(t, queueDir)
	r := run(t.Context(), "", "get", "--servers", address, "--collection", "jobs", "bad")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stderr, `boxcar: document "bad" is unavailable on all servers asked: `)

	r = run(t.Context(), "", "mget", "--servers", address, "--collection", "jobs", "bad", "a")
	require.Equal(t, cli.ExitFailure, r.status)
	lines := strings.Split(r.stdout, "\n")
	require.Regexp(t, `^\{"id":"bad","found":false,"code":"unavailable","error":".*unavailable.*"\}$`, lines[0])
	require.Equal(t, `{"id":"a","found":true,"document":{"id":"a"}}`, lines[1])
	require.Equal(t, "boxcar: 1 of 2 documents could not be fetched\n", r.stderr)

	r = run(t.Context(), "", "scan", "--servers", address, "--collection", "jobs")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Regexp(t, `^\{"id":"a",.*\n\{"id":"bad","found":false,"code":"unavailable","error":".*unavailable.*"\}\n$`, r.stdout)
	require.Equal(t, "boxcar: 1 of 2 documents could not be fetched\n", r.stderr)
}

// damage changes a byte of the text in a queue's files.
func damage(t *testing.T, queueDir, text string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(queueDir, "*"))
	require.NoError(t, err)
	for _, name := range files {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		if at := bytes.Index(content, []byte(text)); at >= 0 {
			content[at] ^= 0x20
			require.NoError(t, os.WriteFile(name, content, 0o600))
			return
		}
	}
	require.Fail(t, "no file holds the text", text)
}

func TestNoServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	r := run(t.Context(), "", "get", "--servers", address, "--collection", "jobs", "--timeout", "50ms", "--log-level", "ERROR", "a")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Regexp(t, `^boxcar: no server of \[`+address+`\] answered within 50ms; is one running there, and serving Boxcar\? `+
		`context deadline exceeded \(`+address+`: .*refused\)\n$`, r.stderr)
}

// longTimeout is for commands that must not wait for it.
const longTimeout = "1h"

// A command whose servers are all draining fails at once with the reason.
func TestGetOfADrainedServer(t *testing.T) {
	queueDir := newQueue(t, map[string]string{"a": "{}"})
	first, second := serve(t, queueDir), serve(t, queueDir)
	require.Equal(t, cli.ExitOK, run(t.Context(), "", "drain", "--servers", first).status)
	r := run(t.Context(), "", "get", "--servers", first+","+second, "--collection", "jobs", "a")
	require.Equal(t, cli.ExitOK, r.status, "the other one serves: %s", r.stderr)
	for _, command := range [][]string{{"get", "a"}, {"mget", "a"}, {"scan"}, {"bench"}} {
		args := append(slices.Clone(command), "--servers", first, "--timeout", longTimeout)
		if command[0] != "bench" {
			args = append(args, "--collection", "jobs")
		} else {
			args = []string{"bench", "--servers", first, "--timeout", "24h"}
		}
		r := run(t.Context(), "", args...)
		require.Equal(t, result{cli.ExitFailure, "", "boxcar: no server of [" + first + "] gives out slots: " + first + ": the server is draining; " +
			"use other servers, or run boxcar undrain\n"}, r, command)
	}
}

// Commands fail at once if the address is that of an HTTP server.
func TestHTTPIsNotBoxcar(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	address := s.Listener.Addr().String()
	for _, command := range [][]string{{"get", "--collection", "jobs", "a"}, {"slots"}, {"drain"}, {"undrain"}} {
		r := run(t.Context(), "", append(command, "--servers", address, "--timeout", longTimeout)...)
		require.Equal(t, cli.ExitFailure, r.status)
		require.Contains(t, r.stderr, "no server of ["+address+"] speaks Boxcar: "+address+`: handshake: the server does not speak Boxcar: `+
			`an HTTP server answered "HTTP/1.1 400 Bad Request"; use the address of docserviced --boxcar`)
	}
	r := run(t.Context(), "", "probe", "--servers", address, "--collection", "jobs", "--timeout", longTimeout)
	require.Contains(t, r.stderr, `the server does not speak Boxcar: an HTTP server answered "HTTP/1.1 400 Bad Request"; is it the address`)
}

// An address that cannot be dialled is an error of usage, before any dial.
func TestAddressesAreChecked(t *testing.T) {
	for servers, problem := range map[string]string{
		"localhost":               `--servers: address localhost has no port; write HOST:PORT, such as localhost:7070`,
		"localhost:7070,10.0.0.1": `--servers: address 10.0.0.1 has no port; write HOST:PORT, such as 10.0.0.1:7070`,
		"localhost:99999":         `--servers: address localhost:99999: 99999 is not a port; write a number from 1 to 65535`,
	} {
		r := run(t.Context(), "", "get", "--collection", "jobs", "--servers", servers, "a")
		require.Equal(t, result{cli.ExitUsage, "", "boxcar: " + problem + "; see boxcar get --help\n"}, r)
	}
}

func TestSlots(t *testing.T) {
	address := serve(t, newQueue(t, map[string]string{"a": "{}"}))
	holdSlot(t, address)
	r := run(t.Context(), "", "slots", "--servers", address)
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	lines := strings.Split(r.stdout, "\n")
	// The command itself may hold a slot.
	require.Regexp(t, "^"+address+` \(.*\): [12] slots?, lowest free [12], 0 requests in flight, 0 of them streams$`, lines[0])
	require.Regexp(t, `^slot +client +address +age +requests +errors +state$`, lines[1])
	r = run(t.Context(), "", "slots", "--json", "--servers", address)
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	require.Regexp(t, `^\{"server":"`+address+`","name":.*"slots":\[\{"slot":0,"client":"holder",.*\}\n$`, r.stdout)
	require.Regexp(t, `^0 +holder +127\.0\.0\.1:\d+ +\d+s +0 +0 +free$`, lines[2])
}

// The share of the requests that come from other zones, and the zone of each client.
func TestSlotsShowZones(t *testing.T) {
	var text bytes.Buffer
	out := cli.NewOutput(&text)
	require.NoError(t, printBoard(out, "be-1:7070", boxcarrpc.Board{Name: "be-1", Zone: "eu-1a", Requests: 4000, OtherZone: 30, Slots: []boxcarrpc.BoardSlot{
		{Number: 0, Client: "fe-1", Zone: "eu-1b", Identity: "search", Requests: 30},
	}}))
	require.NoError(t, out.Flush())
	require.Contains(t, text.String(), "0 of them streams; zone eu-1a, 0.75 % of 4,000 requests from other zones\n")
	require.Contains(t, text.String(), "fe-1 in eu-1b as search")

	r := run(t.Context(), "", "get", "--zone", "a/b", "--collection", "jobs", "1")
	require.Equal(t, cli.ExitUsage, r.status)
	require.Contains(t, r.stderr, `--zone: zone "a/b"`)
}

// TestCommandsForEachServerHaveNoZone: they contact all servers, whatever their zones.
func TestCommandsForEachServerHaveNoZone(t *testing.T) {
	for _, command := range []string{"slots", "drain", "undrain", "probe"} {
		r := run(t.Context(), "", command, "--zone", "eu-1a")
		require.Equal(t, cli.ExitUsage, r.status, command)
		require.Contains(t, r.stderr, "--zone", command)
	}
}

// TestSlotsWithUnreachableServer: slots continues when a server is down.
func TestSlotsWithUnreachableServer(t *testing.T) {
	queueDir := newQueue(t, map[string]string{"a": "{}"})
	first, last := serve(t, queueDir), serve(t, queueDir)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	down := listener.Addr().String()
	require.NoError(t, listener.Close())
	r := run(t.Context(), "", "slots", "--servers", first+","+down+","+last, "--timeout", "1s", "--log-level", "ERROR")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Regexp(t, "(?m)^"+first+` \(`, r.stdout)
	require.Regexp(t, "(?m)^"+last+` \(`, r.stdout)
	require.NotContains(t, r.stdout, down)
	require.Regexp(t, "^boxcar: "+down+": no server .*\n$", r.stderr)
}

// holdSlot holds a slot until the test ends, as client "holder".
func holdSlot(t *testing.T, address string) *boxcarrpc.Pool {
	t.Helper()
	pool, err := boxcarrpc.NewPool(discovery.Static(address), &boxcarrpc.PoolOptions{Size: 1, Name: "holder"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	require.NoError(t, pool.WaitReady(t.Context()))
	return pool
}

func TestDrain(t *testing.T) {
	queueDir := newQueue(t, map[string]string{"a": "{}"})
	first, second := serve(t, queueDir), serve(t, queueDir)
	pool := holdSlot(t, first)
	both := first + "," + second
	r := run(t.Context(), "", "drain", "--servers", both)
	require.Equal(t, result{cli.ExitOK, first + ": drained\n" + second + ": drained\n", ""}, r)
	require.Zero(t, pool.Stats().Slots)
	r = run(t.Context(), "", "slots", "--servers", both)
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	require.Equal(t, 2, strings.Count(r.stdout, "draining, 0 slots, lowest free 0, 0 requests in flight"), r.stdout)

	r = run(t.Context(), "", "undrain", "--servers", both)
	require.Equal(t, result{cli.ExitOK, first + ": gives out slots\n" + second + ": gives out slots\n", ""}, r)
	require.NoError(t, pool.WaitReady(t.Context()), "the client returns")
}

// If requests do not end, drain fails after its timeout and reports them.
func TestDrainGivesUp(t *testing.T) {
	entered := make(chan struct{})
	address := serveHandler(t, func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
		close(entered)
		<-ctx.Done()
		return dst, ctx.Err()
	})
	pool := holdSlot(t, address)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = pool.Call(ctx, "m", nil, nil)
	}()
	<-entered
	r := run(t.Context(), "", "drain", "--servers", address, "--timeout", "300ms")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Equal(t, "boxcar: "+address+" still has 1 slot given out and 1 request in flight after 300ms, and is still draining; see boxcar slots\n", r.stderr)
	cancel()
	<-ended
	r = run(t.Context(), "", "drain", "--servers", address)
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"get", "a"},
		{"get", "--collection", "jobs"},
		{"get", "--collection", "jobs", "a", "b"},
		{"get", "--collection", "jobs", "--timeout", "0s", "a"},
		{"get", "--collection", "jobs", "--servers", "", "a"},
		{"mget", "--collection", "jobs"},
		{"scan"},
		{"scan", "--collection", "jobs", "--limit", "-1"},
		{"scan", "--collection", "jobs", "prefix"},
		{"slots", "a"},
		{"slots", "--servers", ""},
		{"slots", "--timeout", "0s"},
		{"drain", "--servers", ""},
		{"undrain", "--timeout", "0s"},
	} {
		r := run(t.Context(), "", args...)
		require.Equal(t, cli.ExitUsage, r.status, "%v: %s", args, r.stderr)
		require.Regexp(t, `^boxcar: .+; see boxcar.* --help\n$`, r.stderr)
	}
	for _, command := range []string{"get", "mget", "scan", "slots", "drain", "undrain"} {
		help := run(t.Context(), "", command, "--help")
		require.Equal(t, cli.ExitOK, help.status)
		require.Contains(t, help.stdout, "Examples:\n  boxcar "+command)
	}
}
