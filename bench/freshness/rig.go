package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"docstore/bench/internal/process"
)

const collection = "jobs"

// A rig has the processes through which a document passes.
type rig struct {
	dir     string
	input   io.WriteCloser     // what the updater reads
	daemons [2]daemon          // on the queue, and on the copy
	running []*process.Process // in the order in which they are ended
}

type daemon struct{ boxcar, http string }

// startRig builds the commands and starts them in a new directory.
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
	bin, queue, replica := filepath.Join(dir, "bin"), filepath.Join(dir, "queue"), filepath.Join(dir, "copy")
	for _, d := range []string{bin, queue, replica} {
		if err := os.Mkdir(d, 0o777); err != nil {
			return nil, err
		}
	}
	root, err := process.Build(bin)
	if err != nil {
		return nil, err
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
		if d.boxcar, err = process.FreeAddress(); err != nil {
			return nil, err
		}
		if d.http, err = process.FreeAddress(); err != nil {
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
	p, err := process.Start(filepath.Base(cmd.Path), cmd)
	if err != nil {
		return err
	}
	r.running = append(r.running, p)
	return nil
}

// stop ends all processes and removes their files.
func (r *rig) stop() error {
	var failed error
	if r.input != nil {
		_ = r.input.Close() // the updater ends, and may have already
	}
	for _, p := range r.running {
		failed = errors.Join(failed, p.Stop())
	}
	return errors.Join(failed, os.RemoveAll(r.dir))
}

// aliveDeadline limits the start of a daemon.
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
