package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/testprocess"
)

// TestProbe sends canaries through a followed log, the updater, two copies made by docstore-
// sync, two daemons and a client. It stops one part after another; the probe reports which.
func TestProbe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source, log := filepath.Join(dir, "source"), filepath.Join(dir, "jobs.log")
	require.NoError(t, os.WriteFile(log, []byte(`{"id":"a"}`+"\n"), 0o644))
	updater := start(t, nil, "docstore-updater", "append", "--queue", source, "--resume", "--follow", "--flush-interval", "50ms", log)
	for files, _ := filepath.Glob(filepath.Join(source, "*.open")); len(files) == 0; files, _ = filepath.Glob(filepath.Join(source, "*.open")) {
		time.Sleep(testprocess.PollInterval)
	}
	var daemons []*daemon
	var syncs []*testprocess.Command
	for _, name := range []string{"one", "two"} {
		queue := filepath.Join(dir, name)
		require.NoError(t, os.Mkdir(queue, 0o755))
		syncs = append(syncs, testprocess.Start(t, exec.Command(syncScript, "--interval", "0.2", source, queue)))
		d := startDaemon(t, queue, filepath.Join(dir, "index-"+name))
		d.waitReady(t)
		daemons = append(daemons, d)
	}
	probe := func(timeout, command string) (status int, stdout, stderr string) {
		cmd := exec.Command(filepath.Join(binaries, "boxcar"), "probe", "--servers", daemons[0].boxcar+","+daemons[1].boxcar,
			"--collection", collectionName, "--append", command, "--timeout", timeout)
		var out, problem strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &problem
		_ = cmd.Run() // the exit status is checked
		return cmd.ProcessState.ExitCode(), out.String(), problem.String()
	}

	canary := "cat >> " + log
	status, out, problem := probe("2m", canary)
	require.Equal(t, 0, status, problem+out)
	require.Contains(t, out, "well: 2 of 2 servers; the canary was appended in ")

	syncs[1].Kill()
	status, out, problem = probe("15s", canary)
	require.Equal(t, 1, status, out)
	require.Contains(t, problem, "them: 1 of 2 servers: "+daemons[1].boxcar+": the canary is not here: this copy of the queue ends at ")

	updater.Kill()
	status, out, problem = probe("8s", canary)
	require.Equal(t, 1, status, out)
	require.Contains(t, problem, "ingest: the canary was appended and is on no server")

	daemons[1].Kill()
	status, out, problem = probe("8s", "")
	require.Equal(t, 1, status, out)
	require.Contains(t, problem, "them: 1 of 2 servers: "+daemons[1].boxcar+": does not answer: ")

	daemons[0].Kill()
	status, _, problem = probe("8s", "")
	require.Equal(t, 1, status)
	require.Contains(t, problem, "me: none of 2 servers can be reached from here (")
}
