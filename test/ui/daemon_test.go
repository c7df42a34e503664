package ui

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// commands is the directory of the built commands.
var commands string

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "docstore-ui")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // best effort
	build := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "./cmd/...")
	build.Dir = filepath.Join("..", "..")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the commands:", err)
		return 1
	}
	commands = dir
	return m.Run()
}

// daemon is a docserviced that serves a queue.
type daemon struct {
	t            *testing.T
	queue        string
	flags        []string // further ones
	http, boxcar string
}

// startDaemon serves a queue until the test ends, as the collection jobs and others. The memory
// limit is small enough for tables and filters to be written.
func startDaemon(t *testing.T, others ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, queue: filepath.Join(t.TempDir(), "queue")}
	var first, second strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&first, `{"id":"job-%05d","title":"Engineer %d","text":"<b>%s</b>"}`+"\n", i, i%7, strings.Repeat("words ", i%20))
		if i%3 == 0 {
			fmt.Fprintf(&second, `{"id":"job-%05d","title":"Senior engineer"}`+"\n", i)
		}
	}
	d.append(first.String())
	d.append(second.String())
	d.serve(d.queue, others...)
	return d
}

// serve serves the source as collections until the test ends.
func (d *daemon) serve(source string, others ...string) {
	t := d.t
	args := []string{"serve", "--collection", "jobs=" + source, "--data", t.TempDir(),
		"--boxcar", "127.0.0.1:0", "--http", "127.0.0.1:0", "--memory", "16MiB", "--quiet"}
	args = append(args, d.flags...)
	for _, name := range others {
		args = append(args, "--collection", name+"="+source)
	}
	command := exec.Command(filepath.Join(commands, "docserviced"), args...)
	log, err := command.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		require.NoError(t, command.Process.Signal(syscall.SIGTERM))
		require.NoError(t, command.Wait())
	})
	ready := false
	lines := bufio.NewScanner(log)
	for (!ready || d.http == "") && lines.Scan() { // a short queue is read before the daemon serves
		var line struct{ Msg, HTTP, Boxcar string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &line), lines.Text())
		if line.Msg == "serving" {
			d.http, d.boxcar = line.HTTP, line.Boxcar
		}
		ready = ready || line.Msg == "the queue has been read to its end"
	}
	require.True(t, ready, "the daemon exited")
	go func() {
		for lines.Scan() { // drain the pipe, so the daemon does not block
		}
	}()
}

// updater runs a command of docstore-updater.
func (d *daemon) updater(args ...string) {
	d.t.Helper()
	output, err := exec.Command(filepath.Join(commands, "docstore-updater"), args...).CombinedOutput()
	require.NoError(d.t, err, string(output))
}

// append appends documents to the queue.
func (d *daemon) append(lines string) {
	d.t.Helper()
	command := exec.Command(filepath.Join(commands, "docstore-updater"), "append", "--queue", d.queue, "--quiet")
	command.Stdin = strings.NewReader(lines)
	output, err := command.CombinedOutput()
	require.NoError(d.t, err, string(output))
}

// load fetches documents over Boxcar until the test ends.
func (d *daemon) load() {
	d.t.Helper()
	ids := filepath.Join(d.t.TempDir(), "ids")
	var list bytes.Buffer
	for i := range 1000 {
		fmt.Fprintf(&list, "job-%05d\n", i)
	}
	require.NoError(d.t, os.WriteFile(ids, list.Bytes(), 0o600))
	command := exec.Command(filepath.Join(commands, "boxcar"), "bench", "--servers", d.boxcar, "--collection", "jobs", "--ids", ids,
		"--rate", "500", "--duration", "10m", "--pool-size", "8", "--callers", "8")
	require.NoError(d.t, command.Start())
	d.t.Cleanup(func() {
		require.NoError(d.t, command.Process.Kill())
		_ = command.Wait() // always an error: it was killed
	})
}
