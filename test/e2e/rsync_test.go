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
)

// syncScript is what deploy/ has for production, and the tests run it as it is.
var syncScript = filepath.Join("..", "..", "deploy", "docstore-sync")

// replica is a copy of a queue's directory that is kept up to date.
type replica struct {
	source, target string
	stop           func()

	script *process // nil if plain rsync makes the copy
	notes  string   // where the stand-in for rsync writes
}

// startReplica copies a queue to a new directory with deploy/docstore-sync.
func startReplica(t *testing.T, source string, options ...string) *replica {
	t.Helper()
	return resumeReplica(t, source, t.TempDir(), options...)
}

// resumeReplica is startReplica to a directory that may have segments already.
// Between script and rsync stands a command that notes the process id and the
// bytes sent.
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
	r := &replica{source: source, target: target, notes: notes, script: launch(t, cmd)}
	stopped := false // no sync.OnceFunc: a test that fails in one ends all others by a panic
	r.stop = func() {
		if !stopped {
			stopped = true
			r.script.stop(t)
		}
	}
	t.Cleanup(r.stop)
	return r
}

// sent is how many bytes the transfers that came to their end have cost, in both
// directions.
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

// killRsync ends the transfer that is under way with SIGKILL. It returns false
// if there is none.
func (r *replica) killRsync(t *testing.T) bool {
	t.Helper()
	note, err := os.ReadFile(filepath.Join(r.notes, "pid"))
	if err != nil {
		return false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(note)))
	return err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil
}

// startPlainRsync copies with rsync alone, as somebody does who has not read the
// manual: everything in one pass, in one mode.
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
	// 23 and 24 say that a file vanished or changed its name meanwhile: the
	// writer sealed it, and the next pass finds it under its new name.
	if code := cmd.ProcessState.ExitCode(); err != nil && code != 23 && code != 24 {
		t.Errorf("rsync %v: %v\n%s", args, err, out)
	}
}
