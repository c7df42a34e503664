package docserviced

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/cmd/internal/cli"
	"docstore/docservice/server"
	"docstore/internal/servertest"
)

// A memberlist probe in progress at shutdown ends later by itself.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

// result is the result of a command.
type result struct {
	status         int
	stdout, stderr string
}

func run(ctx context.Context, args ...string) result {
	var stdout, stderr servertest.Buffer
	env := &cli.Env{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Now: time.Now}
	status := cli.Run(ctx, New, env, args)
	return result{status, stdout.String(), stderr.String()}
}

// lastLine returns the last line of standard error, which is the command's error.
func (r result) lastLine() string {
	lines := strings.Split(strings.TrimSuffix(r.stderr, "\n"), "\n")
	return lines[len(lines)-1]
}

// testOptions returns options of a daemon on free ports with one collection, "jobs".
func testOptions(t *testing.T, queueDir string) serveOptions {
	return serveOptions{Options: server.Options{
		Collections: []server.Collection{{Name: "jobs", Source: queueDir}},
		DataDir:     filepath.Join(t.TempDir(), "data"),
		Boxcar:      "127.0.0.1:0",
		HTTP:        server.HTTP{Address: "127.0.0.1:0"},
		Memory:      64 << 20,
	}}
}

// startTestDaemon starts a daemon and stops it at the end of the test.
func startTestDaemon(t *testing.T, o serveOptions) (*process, *servertest.Buffer) {
	t.Helper()
	var log servertest.Buffer
	env := &cli.Env{Stdout: &log, Stderr: &log, Now: time.Now}
	env.Log = env.NewLogger(slog.LevelInfo)
	d, err := startProcess(env, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, d.Stop(time.Second))
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return d, &log
}

func waitReady(t *testing.T, d *process) {
	t.Helper()
	require.NoError(t, d.Collections()[0].WaitReady(t.Context()))
}

// indexOnce creates the index of a queue in a data directory.
func indexOnce(t *testing.T, o serveOptions) {
	t.Helper()
	env := &cli.Env{Stdout: &servertest.Buffer{}, Stderr: &servertest.Buffer{}, Now: time.Now}
	env.Log = env.NewLogger(slog.LevelInfo)
	d, err := startProcess(env, o)
	require.NoError(t, err)
	waitReady(t, d)
	require.NoError(t, d.Stop(time.Second))
}

func TestUsage(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{
		{},
		{"serve"},
		{"serve", "--data", dir},
		{"serve", "--collection", "jobs=" + dir},
		{"serve", "--data", dir, "--collection", "jobs"},
		{"serve", "--data", dir, "--collection", "=" + dir},
		{"serve", "--data", dir, "--collection", "a/b=" + dir},
		{"serve", "--data", dir, "--collection", "..=" + dir},
		{"serve", "--data", dir, "--collection", "LOCK=" + dir},
		{"serve", "--data", dir, "--collection", "jobs=" + dir, "--collection", "jobs=" + dir},
		{"serve", "--data", dir, "--collection", "jobs=" + dir, "--memory", "1MiB"},
		{"serve", "--data", dir, "--collection", "jobs=" + dir, "extra"},
		{"check"},
		{"checkpoint", "--data", dir},
		{"demo", "extra"},
	} {
		r := run(t.Context(), args...)
		require.Equal(t, cli.ExitUsage, r.status, "%v: %s", args, r.stderr)
		require.Regexp(t, `^docserviced: .+; see docserviced.* --help\n$`, r.stderr)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries, "a command with invalid flags must not create files")
}

// TestServeReportsAllInvalidFlags: all errors are reported, together, in one line.
func TestServeReportsAllInvalidFlags(t *testing.T) {
	dir := t.TempDir()
	r := run(t.Context(), "serve", "--data", dir, "--collection", "jobs", "--memory", "1MiB", "--grace", "-1s", "--http", "7071", "--max-conns", "0",
		"--rate-burst", "3", "--otlp", "collector", "--weight", "0", "--advertise", "be-1:7070", "--client-rate", "fast")
	require.Equal(t, cli.ExitUsage, r.status)
	require.Equal(t, `docserviced: --client-rate "fast": write a number, such as 0.5 or 2000; --grace -1s: must not be negative; `+
		`--collection jobs: must be NAME=QUEUEDIR or NAME=URL; --memory 1MiB: must be at least 16 MiB; --http "7071": write an address as HOST:PORT, or :PORT for all of this machine; `+
		`--max-conns 0: must be between 1 and 16777216; --rate-burst needs --rate; give both; --otlp collector: must be a URL like http://collector:4318; `+
		`--advertise needs --discovery or --column; give both; --weight 0: must be more than 0 and at most 1000000; see docserviced serve --help`+"\n", r.stderr)
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"serve", "--help"}, {"demo", "--help"}, {"check", "--help"}, {"checkpoint", "--help"}} {
		r := run(t.Context(), args...)
		require.Equal(t, cli.ExitOK, r.status)
		require.Contains(t, r.stdout, "Usage:")
		if len(args) > 1 {
			require.Contains(t, r.stdout, "Examples:\n  docserviced "+args[0])
		}
	}
}

func TestOpenErrors(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	running := testOptions(t, queueDir)
	d, _ := startTestDaemon(t, running)
	for _, test := range []struct {
		name, problem string
		change        func(*serveOptions)
	}{
		{"data directory in use", fmt.Sprintf("data directory %s is in use by docserviced, process %d; stop that process, or choose another --data", running.DataDir, os.Getpid()),
			func(o *serveOptions) { o.DataDir = running.DataDir }},
		{"boxcar address in use", "--boxcar " + d.BoxcarAddress() + ": the address is in use; stop the process that uses it, or choose another",
			func(o *serveOptions) { o.Boxcar = d.BoxcarAddress() }},
		{"http address in use", "--http " + d.HTTPAddress() + ": the address is in use; stop the process that uses it, or choose another",
			func(o *serveOptions) { o.HTTP.Address = d.HTTPAddress() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := testOptions(t, queueDir)
			test.change(&o)
			r := run(t.Context(), "serve", "--collection", "jobs="+queueDir, "--data", o.DataDir, "--boxcar", o.Boxcar, "--http", o.HTTP.Address)
			require.Equal(t, cli.ExitFailure, r.status)
			require.Equal(t, "docserviced: "+test.problem, r.lastLine())
		})
	}
	missing := filepath.Join(t.TempDir(), "missing")
	r := run(t.Context(), "serve", "--collection", "jobs="+missing, "--data", t.TempDir())
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "queue directory "+missing+" of collection jobs: ")
}

// TestServe runs the command until its context ends, as on SIGTERM.
func TestServe(t *testing.T) {
	queueDir, dataDir := t.TempDir(), t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`, "b", `{"id":"b"}`)
	for range 2 { // the second time with an existing index
		ctx, cancel := context.WithCancel(t.Context())
		var stderr servertest.Buffer
		env := &cli.Env{Stdout: &stderr, Stderr: &stderr, Now: time.Now}
		ended := make(chan int)
		go func() {
			ended <- cli.Run(ctx, New, env, []string{"serve", "--collection", "jobs=" + queueDir, "--data", dataDir,
				"--boxcar", "127.0.0.1:0", "--http", "127.0.0.1:0", "--memory", "32MiB"})
		}()
		servertest.Until(t.Context(), func() bool { return strings.Contains(stderr.String(), "the queue has been read to its end") })
		cancel()
		require.Equal(t, cli.ExitOK, <-ended, stderr.String())
	}
	r := run(t.Context(), "check", "--data", dataDir)
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	require.Regexp(t, `^jobs: sound, verified in [\d.]+ (µs|ms|s)\n$`, r.stdout)
}

func TestCheckpoint(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`, "b", `{"id":"b"}`, "b", "")
	o := testOptions(t, queueDir)
	target := filepath.Join(t.TempDir(), "copy")

	running, _ := startTestDaemon(t, o)
	waitReady(t, running)
	r := run(t.Context(), "checkpoint", "--data", o.DataDir, target)
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	r = run(t.Context(), "checkpoint", "--data", o.DataDir, target)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), target+" already exists")
	require.Equal(t, cli.ExitOK, run(t.Context(), "check", "--data", target).status)

	o.DataDir = target
	copied, _ := startTestDaemon(t, o)
	waitReady(t, copied)
	require.Zero(t, copied.Collections()[0].Status().Applied, "the copy must continue at its position")
	document, err := copied.Collections()[0].Get(nil, []byte("a"))
	require.NoError(t, err)
	require.Equal(t, `{"id":"a"}`, string(document))
}

func TestNoIndexes(t *testing.T) {
	for _, args := range [][]string{{"check"}, {"checkpoint", filepath.Join(t.TempDir(), "target")}} {
		empty := t.TempDir()
		r := run(t.Context(), append(args, "--data", empty)...)
		require.Equal(t, cli.ExitFailure, r.status)
		require.Equal(t, "docserviced: "+empty+" has no index; give the --data of docserviced serve", r.lastLine())
	}
}

func TestCheckFindsDamage(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	o := testOptions(t, queueDir)
	indexOnce(t, o)
	target := filepath.Join(t.TempDir(), "copy") // a checkpoint has tables
	require.Equal(t, cli.ExitOK, run(t.Context(), "checkpoint", "--data", o.DataDir, target).status)
	flipLargest(t, filepath.Join(target, "jobs", "index-0001.v1"))
	r := run(t.Context(), "check", "--data", target)
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stdout, "jobs: damaged: ")
	require.Contains(t, r.lastLine(), "1 of 1 indexes in "+target+" are damaged")
}

// flipLargest changes a byte in the middle of the largest file of a directory.
func flipLargest(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	var largest string
	var size int64
	for _, name := range files {
		info, err := os.Stat(name)
		require.NoError(t, err)
		if info.Mode().IsRegular() && info.Size() > size {
			largest, size = name, info.Size()
		}
	}
	content, err := os.ReadFile(largest)
	require.NoError(t, err)
	content[len(content)/2] ^= 0xff
	require.NoError(t, os.WriteFile(largest, content, 0o600))
}
