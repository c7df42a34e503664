package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
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
	inputs  []io.WriteCloser   // of the updaters
	boxcar  [daemons]string    // addresses of the daemons, in the order of rows
	running []*process.Process // in the order in which they are ended
	s3      *httptest.Server
}

// daemons is the number of daemons.
const daemons = 4

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
	path := func(name string) string { return filepath.Join(dir, name) }
	bin, queue, replica := path("bin"), path("queue"), path("copy")
	for _, d := range []string{bin, queue, replica} {
		if err := os.Mkdir(d, 0o777); err != nil {
			return nil, err
		}
	}
	root, err := process.Build(bin)
	if err != nil {
		return nil, err
	}
	if r.s3, err = startS3(s.delay); err != nil {
		return nil, err
	}
	flags := []string{"--s3-endpoint", r.s3.URL, "--s3-path-style"}
	const s3 = "s3://" + bucketName + "/jobs"
	directory := "file://" + path("bucket")
	for _, extra := range [][]string{
		{"--queue", queue},
		{"--queue", path("queue-2"), "--announce", "--publish", directory},
		append([]string{"--queue", path("queue-3"), "--announce", "--publish", s3}, flags...),
	} {
		updater := exec.Command(filepath.Join(bin, "docstore-updater"), append([]string{"append", "--flush-interval", s.flush.String()}, extra...)...)
		updater.Env = environment()
		input, err := updater.StdinPipe()
		if err != nil {
			return nil, err
		}
		r.inputs = append(r.inputs, input)
		if _, err := r.start(updater); err != nil {
			return nil, err
		}
	}
	script := filepath.Join(root, "deploy", "docstore-sync")
	if _, err := r.start(exec.Command(script, "--interval", fmt.Sprint(int(s.interval.Seconds())), queue, replica)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for i, from := range [daemons]string{queue, replica, directory, s3} {
		var http string
		if err := process.FreeAddresses(&r.boxcar[i], &http); err != nil {
			return nil, err
		}
		daemon := exec.Command(filepath.Join(bin, "docserviced"), append([]string{"serve", "--collection", collection + "=" + from,
			"--data", path(fmt.Sprint("data-", i)), "--boxcar", r.boxcar[i], "--http", http}, flags...)...)
		daemon.Env = environment()
		p, err := r.start(daemon)
		if err != nil {
			return nil, err
		}
		if err := p.Ready(ctx, "http://"+http+"/healthz"); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// environment returns the environment of the commands, with credentials that any S3 server of
// startS3 accepts.
func environment() []string {
	return append(os.Environ(), "AWS_ACCESS_KEY_ID=bench", "AWS_SECRET_ACCESS_KEY=bench", "AWS_REGION=us-east-1")
}

// write writes a line to all updaters.
func (r *rig) write(document []byte) error {
	for _, input := range r.inputs {
		if _, err := input.Write(append(document, '\n')); err != nil {
			return fmt.Errorf("writing to docstore-updater: %w", err)
		}
	}
	return nil
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
	for _, input := range r.inputs {
		_ = input.Close() // the updater ends, and may have already
	}
	for _, p := range r.running {
		failed = errors.Join(failed, p.Stop())
	}
	if r.s3 != nil {
		r.s3.Close()
	}
	return errors.Join(failed, os.RemoveAll(r.dir))
}
