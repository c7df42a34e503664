package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/testprocess"
)

// syncScript is the script used in production.
var syncScript = filepath.Join("..", "..", "deploy", "docstore-sync")

// replica is a continuously updated copy of a queue directory.
type replica struct {
	source, target string
	stop           func()

	script *testprocess.Command // nil if plain rsync makes the copy
	notes  string               // directory of the rsync wrapper and its records
}

// startReplica copies a queue to a new directory with deploy/docstore-sync.
func startReplica(t *testing.T, source string, options ...string) *replica {
	t.Helper()
	return resumeReplica(t, source, t.TempDir(), options...)
}

// resumeReplica is startReplica for a directory that may contain segments. A wrapper of rsync
// records its process id and the bytes sent.
func resumeReplica(t *testing.T, source, target string, options ...string) *replica {
	t.Helper()
	rsync, err := exec.LookPath("rsync")
	require.NoError(t, err, "rsync is needed: make setup installs it")
	notes := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(notes, "rsync"), fmt.Appendf(nil, `#!/bin/sh
case " $* " in *" --list-only "*) exec '%[1]s' "$@" ;; esac
echo $$ >'%[2]s/pid'
exec '%[1]s' --stats "$@" >>'%[2]s/stats'
`, rsync, notes), 0o755))

	args := append([]string{"--interval", "0.1"}, options...)
	cmd := exec.Command(syncScript, append(args, source, target)...)
	cmd.Env = append(os.Environ(), "PATH="+notes+":"+os.Getenv("PATH"))
	r := &replica{source: source, target: target, notes: notes, script: testprocess.Start(t, cmd)}
	stopped := false // no sync.OnceFunc: a test failure inside it panics the other callers
	r.stop = func() {
		if !stopped {
			stopped = true
			r.script.Stop(t)
		}
	}
	t.Cleanup(r.stop)
	return r
}

// sent returns the bytes of completed transfers, both directions.
func (r *replica) sent(t *testing.T) (bytes int64) {
	t.Helper()
	stats, err := os.ReadFile(filepath.Join(r.notes, "stats"))
	require.NoError(t, err)
	for line := range strings.Lines(string(stats)) {
		for _, label := range []string{"Total bytes sent: ", "Total bytes received: "} {
			if number, ok := strings.CutPrefix(line, label); ok {
				n, err := strconv.ParseInt(strings.ReplaceAll(strings.TrimSpace(number), ",", ""), 10, 64)
				require.NoError(t, err)
				bytes += n
			}
		}
	}
	return bytes
}

// killRsync sends SIGKILL to the current transfer. It returns false if there is none.
func (r *replica) killRsync(t *testing.T) bool {
	t.Helper()
	note, err := os.ReadFile(filepath.Join(r.notes, "pid"))
	if err != nil {
		return false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(note)))
	return err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil
}

// startPlainRsync copies with rsync alone, in one pass and one mode, against the manual.
func startPlainRsync(t *testing.T, source string, mode ...string) *replica {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	r := &replica{source: source, target: t.TempDir()}
	r.stop = func() { cancel(); running.Wait() }
	t.Cleanup(r.stop)
	running.Go(func() {
		for ctx.Err() == nil {
			r.plainPass(t, mode...)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return r
}

func (r *replica) plainPass(t *testing.T, mode ...string) {
	args := append([]string{"--times", "--recursive", "--no-whole-file"}, mode...)
	args = append(args, "--include=*.seg", "--include=*.open", "--exclude=*", r.source+"/", r.target+"/")
	cmd := exec.Command("rsync", args...)
	out, err := cmd.CombinedOutput()
	// Status 23 and 24: a file was deleted or renamed during the transfer. The writer sealed
	// it; the next pass copies it under its new name.
	if code := cmd.ProcessState.ExitCode(); err != nil && code != 23 && code != 24 {
		t.Errorf("rsync %v: %v\n%s", args, err, out)
	}
}
