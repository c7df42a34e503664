package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const collection = "jobs"

// rig is the processes that a document passes through.
type rig struct {
	dir     string
	input   io.WriteCloser // what the updater reads
	daemons [2]daemon      // on the queue, and on the copy
	running []*process     // in the order in which they are ended
}

type daemon struct{ boxcar, http string }

// process is a command that runs.
type process struct {
	name   string
	cmd    *exec.Cmd
	output bytes.Buffer // to be read when it has ended
}

// startRig builds the commands and starts them in a directory of their own.
func startRig(ctx context.Context, s settings) (_ *rig, err error) {
	dir, err := os.MkdirTemp("", "docstore-freshness-")
	if err != nil {
		return nil, err
	}
	r := &rig{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.stop())
		}
	}()
	found, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "docstore").Output()
	if err != nil {
		return nil, fmt.Errorf("finding the module: %w", err)
	}
	root := string(bytes.TrimSpace(found))
	bin, queue, replica := filepath.Join(dir, "bin"), filepath.Join(dir, "queue"), filepath.Join(dir, "copy")
	for _, d := range []string{bin, queue, replica} {
		if err := os.Mkdir(d, 0o777); err != nil {
			return nil, err
		}
	}
	build := exec.Command("go", "build", "-o", bin, "./cmd/docstore-updater", "./cmd/docserviced")
	build.Dir = root // bench/ has a go.mod of its own
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the commands: %w\n%s", err, out)
	}
	updater := exec.Command(filepath.Join(bin, "docstore-updater"), "append", "--queue", queue, "--flush-interval", s.flush.String())
	if s.follow {
		log := filepath.Join(dir, "log")
		updater.Args = append(updater.Args, "--follow", log)
		r.input, err = os.Create(log)
	} else {
		r.input, err = updater.StdinPipe()
	}
	if err != nil {
		return nil, err
	}
	script := filepath.Join(root, "deploy", "docstore-sync")
	sync := exec.Command(script, "--interval", fmt.Sprint(int(s.interval.Seconds())), queue, replica)
	for _, cmd := range []*exec.Cmd{updater, sync} {
		if err := r.start(cmd); err != nil {
			return nil, err
		}
	}
	for i, from := range []string{queue, replica} {
		d := &r.daemons[i]
		if d.boxcar, err = freeAddress(); err != nil {
			return nil, err
		}
		if d.http, err = freeAddress(); err != nil {
			return nil, err
		}
		if err := r.start(exec.Command(filepath.Join(bin, "docserviced"), "serve", "--collection", collection+"="+from,
			"--data", filepath.Join(dir, fmt.Sprint("data-", i)), "--boxcar", d.boxcar, "--http", d.http)); err != nil {
			return nil, err
		}
	}
	for _, d := range r.daemons {
		if err := d.waitAlive(ctx); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *rig) start(cmd *exec.Cmd) error {
	p := &process{name: filepath.Base(cmd.Path), cmd: cmd}
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	if err := cmd.Start(); err != nil {
		return err
	}
	r.running = append(r.running, p)
	return nil
}

// stop ends all processes and removes what they have written. A process that did
// not end well is an error, with what it said.
func (r *rig) stop() error {
	var failed error
	if r.input != nil {
		_ = r.input.Close() // the updater ends, and may have already
	}
	for _, p := range r.running {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		if err := p.cmd.Wait(); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w\n%s", p.name, err, p.output.Bytes()))
		}
	}
	return errors.Join(failed, os.RemoveAll(r.dir))
}

// aliveDeadline is how long a daemon may take to start.
const aliveDeadline = 30 * time.Second

// waitAlive waits until the daemon answers.
func (d daemon) waitAlive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, aliveDeadline)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.http+"/healthz", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			response.Body.Close()
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("daemon on %s does not answer: %w", d.http, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// freeAddress names a loopback port that was free a moment ago.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
