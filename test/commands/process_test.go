package commands

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/freeport"
)

// binaries is the directory of the commands.
var binaries string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "docstore-commands-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binaries = dir
		// Without the symbol tables the linker takes half the time.
		build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", dir, "docstore/cmd/docstore-updater", "docstore/cmd/docserviced", "docstore/cmd/boxcar")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building the commands: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// patience bounds the wait for a condition.
const patience = time.Minute

// run runs a command to its end and requires an exit status. It returns its standard output.
func run(t *testing.T, status int, stdin, name string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(t.Context(), filepath.Join(binaries, name), args...)
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(stdin), &stdout, &stderr
	_ = command.Run() // ProcessState has the status
	require.Equal(t, status, command.ProcessState.ExitCode(), "%s %s: %s", name, args, &stderr)
	return stdout.String()
}

// daemon is a running docserviced with the collection jobs.
type daemon struct {
	t            *testing.T
	args         []string
	boxcar, http string
	command      *exec.Cmd
	output       bytes.Buffer // read when the process has ended
}

// serve starts a daemon for a queue or URL.
func serve(t *testing.T, source string) *daemon {
	t.Helper()
	d := &daemon{t: t, boxcar: freeport.Address(t), http: freeport.Address(t)}
	d.args = []string{"serve", "--collection", "jobs=" + source, "--data", filepath.Join(t.TempDir(), "data"), "--boxcar", d.boxcar, "--http", d.http}
	d.start()
	t.Cleanup(func() {
		d.kill()
		if t.Failed() {
			t.Logf("docserviced printed:\n%s", &d.output)
		}
	})
	return d
}

func (d *daemon) start() {
	d.t.Helper()
	d.command = exec.Command(filepath.Join(binaries, "docserviced"), d.args...)
	d.command.Stdout, d.command.Stderr = &d.output, &d.output
	require.NoError(d.t, d.command.Start())
}

// kill sends SIGKILL and waits for the end.
func (d *daemon) kill() {
	_ = d.command.Process.Kill() // it may have ended
	_ = d.command.Wait()
}

// stop sends SIGTERM and requires exit status 0.
func (d *daemon) stop() {
	d.t.Helper()
	require.NoError(d.t, d.command.Process.Signal(syscall.SIGTERM))
	require.NoError(d.t, d.command.Wait(), "the exit status is 0")
}

// get returns the status and body of a response over HTTP, 0 if there is none.
func (d *daemon) get(path string) (status int, body string) {
	response, err := http.Get("http://" + d.http + path)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, ""
	}
	return response.StatusCode, string(content)
}

// waitReady waits until the daemon has read its whole queue.
func (d *daemon) waitReady() {
	d.t.Helper()
	d.wait("/readyz", func(status int, _ string) bool { return status == http.StatusOK })
}

// waitDocument waits until the daemon serves these bytes for an id, or not found if want is
// empty.
func (d *daemon) waitDocument(id, want string) {
	d.t.Helper()
	d.wait("/documents/jobs/"+id, func(status int, body string) bool {
		return want == "" && status == http.StatusNotFound || status == http.StatusOK && body == want
	})
}

func (d *daemon) wait(path string, done func(status int, body string) bool) {
	d.t.Helper()
	require.Eventually(d.t, func() bool { return done(d.get(path)) }, patience, 10*time.Millisecond, path)
}

// compare fetches all ids and some that are absent with boxcar mget.
func (d *daemon) compare(documents map[string]string, absent ...string) {
	d.t.Helper()
	var ids, want strings.Builder
	for id, document := range documents {
		fmt.Fprintln(&ids, id)
		fmt.Fprintf(&want, `{"id":%q,"found":true,"document":%s}`+"\n", id, document)
	}
	for _, id := range absent {
		fmt.Fprintln(&ids, id)
		fmt.Fprintf(&want, `{"id":%q,"found":false}`+"\n", id)
	}
	got := run(d.t, 0, ids.String(), "boxcar", "mget", "--servers", d.boxcar, "--collection", "jobs", "-")
	require.Equal(d.t, want.String(), got)
}
