package commands

import (
	"bytes"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/freeport"
	"docstore/internal/testprocess"
)

// binaries is the directory of the commands.
var binaries string

func TestMain(m *testing.M) {
	testprocess.Main(m, func(dir string) error {
		binaries = dir
		// Without the symbol tables the linker takes half the time.
		return testprocess.Build("-ldflags", "-s -w", "-o", dir, "docstore/cmd/docstore-updater", "docstore/cmd/docserviced", "docstore/cmd/boxcar")
	})
}

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
	*testprocess.Command
	t            *testing.T
	args         []string
	boxcar, http string
}

// serve starts a daemon for a queue or URL.
func serve(t *testing.T, source string) *daemon {
	t.Helper()
	d := &daemon{t: t, boxcar: freeport.Address(t), http: freeport.Address(t)}
	d.args = []string{"serve", "--collection", "jobs=" + source, "--data", filepath.Join(t.TempDir(), "data"), "--boxcar", d.boxcar, "--http", d.http}
	d.start()
	return d
}

func (d *daemon) start() {
	d.t.Helper()
	d.Command = testprocess.Start(d.t, exec.Command(filepath.Join(binaries, "docserviced"), d.args...))
}

// waitReady waits until the daemon has read its whole queue.
func (d *daemon) waitReady() {
	d.t.Helper()
	d.wait("/readyz", func(status int, _ []byte) bool { return status == http.StatusOK })
}

// waitDocument waits until the daemon serves these bytes for an id, or not found if want is
// empty.
func (d *daemon) waitDocument(id, want string) {
	d.t.Helper()
	d.wait("/documents/jobs/"+id, func(status int, body []byte) bool {
		return want == "" && status == http.StatusNotFound || status == http.StatusOK && string(body) == want
	})
}

func (d *daemon) wait(path string, done func(status int, body []byte) bool) {
	d.t.Helper()
	d.WaitResponse(d.t, "http://"+d.http+path, done)
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
