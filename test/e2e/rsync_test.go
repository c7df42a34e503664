package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// replica copies a queue directory to another with the real rsync, again and
// again, until its stop is called.
type replica struct {
	source, target string
	stop           func()
}

// rsyncInterval is the pause between two passes.
const rsyncInterval = 100 * time.Millisecond

func startReplica(t *testing.T, source string) *replica {
	t.Helper()
	_, err := exec.LookPath("rsync")
	require.NoError(t, err, "rsync is needed: make setup installs it")

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	r := &replica{source: source, target: t.TempDir()}
	r.stop = func() { cancel(); running.Wait() }
	t.Cleanup(r.stop)
	running.Go(func() {
		for ctx.Err() == nil {
			r.copyOnce(t)
			select {
			case <-ctx.Done():
			case <-time.After(rsyncInterval):
			}
		}
	})
	return r
}

// copyOnce brings the target up to date: what grows is appended to, a segment
// sealed since is renamed here as it was there so that it is not sent again,
// and what is sealed is compared whole.
func (r *replica) copyOnce(t *testing.T) {
	r.rsync(t, "--append", "--include=*.open", "--exclude=*")
	open, err := filepath.Glob(filepath.Join(r.target, "*.open"))
	if err != nil {
		t.Errorf("listing the replica: %v", err)
	}
	for _, name := range open {
		sealed := strings.TrimSuffix(filepath.Base(name), ".open") + ".seg"
		if _, err := os.Stat(filepath.Join(r.source, sealed)); err == nil {
			if err := os.Rename(name, filepath.Join(r.target, sealed)); err != nil {
				t.Errorf("sealing the replica's copy: %v", err)
			}
		}
	}
	r.rsync(t, "--include=*.seg", "--exclude=*")
}

func (r *replica) rsync(t *testing.T, args ...string) {
	var stderr bytes.Buffer
	args = append([]string{"--times", "--recursive"}, append(args, r.source+"/", r.target+"/")...)
	cmd := exec.Command("rsync", args...)
	cmd.Stderr = &stderr
	err := cmd.Run()
	// 23 and 24 say that a file vanished or changed its name meanwhile: the
	// writer sealed it, and the next pass finds it under its new name.
	if code := cmd.ProcessState.ExitCode(); err != nil && code != 23 && code != 24 {
		t.Errorf("rsync %v: %v\n%s", args, err, stderr.String())
	}
}
