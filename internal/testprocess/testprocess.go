// Package testprocess builds the commands that tests run as processes, starts and stops them, and
// waits for what they do.
package testprocess

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Main is TestMain of tests of commands. It makes a directory, fills it by prepare, runs the tests,
// removes the directory and exits.
func Main(m *testing.M, prepare func(dir string) error) {
	os.Exit(run(m, prepare))
}

func run(m *testing.M, prepare func(dir string) error) int {
	dir, err := os.MkdirTemp("", "docstore-commands-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }() // the rest is in a temporary directory
		err = prepare(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Build is go build with the arguments. Its error has the output.
func Build(args ...string) error {
	if out, err := exec.Command("go", append([]string{"build"}, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// Command is a running command.
type Command struct {
	*exec.Cmd
	Output Buffer        // standard output and error
	Exited chan struct{} // closed when the process has ended
}

// Start starts a command. The cleanup of the test kills it and, if the test failed, logs the end of
// its output.
func Start(t testing.TB, cmd *exec.Cmd) *Command {
	t.Helper()
	p := &Command{Cmd: cmd, Exited: make(chan struct{})}
	p.Stdout, p.Stderr = &p.Output, &p.Output
	require.NoError(t, cmd.Start())
	go func() {
		defer close(p.Exited)
		_ = cmd.Wait() // the exit status is in ProcessState
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%v printed:\n%s", cmd.Args, Tail(p.Output.String(), 4<<10))
		}
	})
	return p
}

// Kill sends SIGKILL and waits for the exit.
func (p *Command) Kill() {
	_ = p.Process.Kill() // it may be gone already
	<-p.Exited
}

// Stop sends SIGTERM and requires exit status 0.
func (p *Command) Stop(t testing.TB) {
	t.Helper()
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	p.WaitExit(t)
}

// WaitExit waits for the process to exit and requires status 0.
func (p *Command) WaitExit(t testing.TB) {
	t.Helper()
	<-p.Exited
	require.Equal(t, 0, p.ProcessState.ExitCode(), "%s: %s", p.Path, Tail(p.Output.String(), 2<<10))
}

const (
	// PollInterval is the pause between two polls of a condition.
	PollInterval = 20 * time.Millisecond
	// WaitLimit ends a wait for a condition that never becomes true. It is far above the longest
	// wait on a loaded machine.
	WaitLimit = 4 * time.Minute
)

// WaitUntil polls until done returns true. It fails the test after WaitLimit and if the process
// exits before.
func (p *Command) WaitUntil(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(WaitLimit); !done(); {
		select {
		case <-p.Exited:
			if done() { // the last output
				return
			}
			require.FailNow(t, "the process exited", "waiting for %s: %s", what, Tail(p.Output.String(), 4<<10))
		case <-time.After(PollInterval):
		}
		require.True(t, time.Now().Before(deadline), "waited %v for %s", WaitLimit, what)
	}
}

// WaitOutput returns when the output of the process contains text.
func (p *Command) WaitOutput(t testing.TB, text string) {
	t.Helper()
	p.WaitUntil(t, fmt.Sprintf("output %q", text), func() bool { return strings.Contains(p.Output.String(), text) })
}

// WaitResponse requests a URL of the command until done accepts the response.
func (p *Command) WaitResponse(t testing.TB, url string, done func(status int, body []byte) bool) {
	t.Helper()
	p.WaitUntil(t, url, func() bool {
		response, err := http.Get(url)
		if err != nil {
			return false
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		return err == nil && done(response.StatusCode, body)
	})
}

// Buffer collects the output of a process while a test reads it.
type Buffer struct {
	mu struct {
		sync.Mutex
		buffer bytes.Buffer
	}
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.buffer.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.buffer.String()
}

// Reset removes the collected output.
func (b *Buffer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.buffer.Reset()
}

// Tail returns the last n bytes of a text.
func Tail(s string, n int) string {
	if len(s) > n {
		return "..." + s[len(s)-n:]
	}
	return s
}
