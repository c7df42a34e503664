package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"docstore/internal/freeport"
	"docstore/internal/testprocess"
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
	testprocess.Main(m, func(dir string) error {
		binaries = dir
		return testprocess.Build("-o", dir, "docstore/cmd/...")
	})
}

// start runs a command of this repository; see testprocess.Start.
func start(t testing.TB, stdin io.Reader, name string, args ...string) *testprocess.Command {
	t.Helper()
	cmd := exec.Command(filepath.Join(binaries, name), args...)
	cmd.Stdin = stdin
	return testprocess.Start(t, cmd)
}

// daemon is a docserviced that serves one copy of the queue.
type daemon struct {
	*testprocess.Command
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
	d.Command = start(t, nil, "docserviced", d.args...)
	return d
}

// restart starts the daemon again with the same addresses and directories.
func (d *daemon) restart(t testing.TB) {
	t.Helper()
	d.Command = start(t, nil, "docserviced", d.args...)
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

// poll requests path until done accepts the response.
func (d *daemon) poll(t testing.TB, path string, done func(status int, body []byte) bool) {
	t.Helper()
	d.WaitResponse(t, "http://"+d.http+path, done)
}
