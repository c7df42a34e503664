package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/freeport"
)

// binaries is the directory of the commands, built once for all tests.
var binaries string

func TestMain(m *testing.M) {
	if os.Getenv(asKafka) != "" {
		if err := runKafka(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "docstore-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binaries = dir
		build := exec.Command("go", "build", "-o", dir, "docstore/cmd/...")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building the commands: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// process is a running command.
type process struct {
	*exec.Cmd
	output lockedBuffer
	exited chan struct{}
}

// start runs a command. The cleanup of the test kills it and, if the test failed, logs its
// output.
func start(t testing.TB, stdin io.Reader, name string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(filepath.Join(binaries, name), args...)
	cmd.Stdin = stdin
	return launch(t, cmd)
}

// launch runs any command; see start.
func launch(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: cmd, exited: make(chan struct{})}
	p.Stdout, p.Stderr = &p.output, &p.output
	require.NoError(t, p.Start())
	go func() {
		defer close(p.exited)
		_ = p.Wait() // the exit status is in ProcessState
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%v printed:\n%s", cmd.Args, tail(p.output.String(), 4<<10))
		}
	})
	return p
}

// kill sends SIGKILL and waits for the exit.
func (p *process) kill() {
	_ = p.Process.Kill() // it may be gone already
	<-p.exited
}

// stop sends SIGTERM and requires exit status 0.
func (p *process) stop(t testing.TB) {
	t.Helper()
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	p.wait(t)
}

// wait waits for the process to exit and requires status 0.
func (p *process) wait(t testing.TB) {
	t.Helper()
	<-p.exited
	require.Equal(t, 0, p.ProcessState.ExitCode(), "%s: %s", p.Path, tail(p.output.String(), 2<<10))
}

// daemon is a docserviced that serves one copy of the queue.
type daemon struct {
	*process
	boxcar, http string
	args         []string
	name         string      // in its fleet
	disturbance  disturbance // in which calls over HTTP may fail
}

const collectionName = "debian"

func startDaemon(t testing.TB, queue, data string) *daemon {
	t.Helper()
	return startDaemonWith(t, queue, data)
}

// startDaemonWith starts a daemon with additional flags.
func startDaemonWith(t testing.TB, queue, data string, flags ...string) *daemon {
	t.Helper()
	d := &daemon{boxcar: freeport.Address(t), http: freeport.Address(t)}
	d.args = []string{
		"serve", "--collection", collectionName + "=" + queue, "--data", data,
		"--boxcar", d.boxcar, "--http", d.http,
	}
	d.args = append(d.args, flags...)
	d.process = start(t, nil, "docserviced", d.args...)
	return d
}

// restart starts the daemon again with the same addresses and directories.
func (d *daemon) restart(t testing.TB) {
	t.Helper()
	d.process = start(t, nil, "docserviced", d.args...)
}

// waitReady waits until the daemon has read its whole queue.
func (d *daemon) waitReady(t testing.TB) {
	t.Helper()
	d.poll(t, "/readyz", func(status int, _ []byte) bool { return status == http.StatusOK })
}

// waitDocument waits until the daemon returns these bytes for the id, or not found if want is
// nil.
func (d *daemon) waitDocument(t testing.TB, id string, want []byte) {
	t.Helper()
	d.poll(t, "/documents/"+collectionName+"/"+id, func(status int, body []byte) bool {
		if want == nil {
			return status == http.StatusNotFound
		}
		return status == http.StatusOK && bytes.Equal(body, want)
	})
}

// pollInterval is the pause between two polls of a condition.
const pollInterval = 20 * time.Millisecond

// waitLimit ends a wait for a condition that never becomes true. It is far above the longest
// wait on a loaded machine.
const waitLimit = 4 * time.Minute

// waitUntil polls until done returns true. It fails the test after waitLimit and if the process
// exits before.
func (p *process) waitUntil(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !done(); {
		select {
		case <-p.exited:
			if done() { // the last output
				return
			}
			require.FailNow(t, "the process exited", "waiting for %s: %s", what, tail(p.output.String(), 4<<10))
		case <-time.After(pollInterval):
		}
		require.True(t, time.Now().Before(deadline), "waited %v for %s", waitLimit, what)
	}
}

// waitOutput returns when the output of the process contains text.
func (p *process) waitOutput(t testing.TB, text string) {
	t.Helper()
	p.waitUntil(t, fmt.Sprintf("output %q", text), func() bool { return strings.Contains(p.output.String(), text) })
}

// poll requests path until done accepts the response.
func (d *daemon) poll(t testing.TB, path string, done func(status int, body []byte) bool) {
	t.Helper()
	d.waitUntil(t, path, func() bool {
		response, err := http.Get("http://" + d.http + path)
		if err != nil {
			return false
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		return err == nil && done(response.StatusCode, body)
	})
}

// lockedBuffer collects the output of a process while a test reads it.
type lockedBuffer struct {
	mu struct {
		sync.Mutex
		buffer bytes.Buffer
	}
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.buffer.String()
}

func (b *lockedBuffer) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.buffer.Reset()
}

func tail(s string, n int) string {
	if len(s) > n {
		return "..." + s[len(s)-n:]
	}
	return s
}
