package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	input   io.WriteCloser     // of the updater
	boxcar  [2]string          // addresses of the daemons on the queue and on the copy
	running []*process.Process // in the order in which they are ended
}

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
	if r.input, err = updater.StdinPipe(); err != nil {
		return nil, err
	}
	script := filepath.Join(root, "deploy", "docstore-sync")
	sync := exec.Command(script, "--interval", fmt.Sprint(int(s.interval.Seconds())), queue, replica)
	for _, cmd := range []*exec.Cmd{updater, sync} {
		if _, err := r.start(cmd); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for i, from := range []string{queue, replica} {
		var http string
		if err := process.FreeAddresses(&r.boxcar[i], &http); err != nil {
			return nil, err
		}
		p, err := r.start(exec.Command(filepath.Join(bin, "docserviced"), "serve", "--collection", collection+"="+from,
			"--data", filepath.Join(dir, fmt.Sprint("data-", i)), "--boxcar", r.boxcar[i], "--http", http))
		if err != nil {
			return nil, err
		}
		if err := p.Ready(ctx, "http://"+http+"/healthz"); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// startTimeout limits the start of the daemons.
const startTimeout = 30 * time.Second

func (r *rig) start(cmd *exec.Cmd) (*process.Process, error) {
	p, err := process.Start(filepath.Base(cmd.Path), cmd)
	if err == nil {
		r.running = append(r.running, p)
	}
	return p, err
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
