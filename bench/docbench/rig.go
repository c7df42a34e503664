package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"docstore/bench/internal/cgroup"
	"docstore/bench/internal/process"
)

// A rig has the directory of the stores and builds the commands.
type rig struct {
	dir    string
	bin    string            // empty until needed
	memory int64             // limit in bytes of the servers of a store together; 0 is no limit
	groups map[string]string // the cgroup of each store
}

// stop removes the control groups and files after all servers have ended.
func (r *rig) stop() (err error) {
	for _, group := range r.groups {
		err = errors.Join(err, os.Remove(group))
	}
	return err
}

// start runs a server of a store. All servers of a store share its memory limit, with the page
// cache of those that have ended.
func (r *rig) start(store string, cmd *exec.Cmd) (*process.Process, error) {
	called := filepath.Base(cmd.Path)
	if r.memory > 0 {
		group, err := r.group(store)
		if err != nil {
			return nil, err
		}
		cgroup.Enclose(cmd, group)
	}
	return process.Start(called, cmd)
}

// A server is the only process of a store, or one of them.
type server struct {
	process *process.Process
	address string
}

// start starts a server at a free address and waits until it accepts connections.
func (s *server) start(ctx context.Context, r *rig, store string, command func(host, port string) *exec.Cmd) (err error) {
	if s.address, err = process.FreeAddress(); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(s.address)
	if err != nil {
		return err
	}
	if s.process, err = r.start(store, command(host, port)); err != nil {
		return err
	}
	return s.process.Listening(ctx, s.address)
}

func (s *server) processes() []*process.Process { return []*process.Process{s.process} }

func (s *server) stop() error { return s.process.Stop() }

// group returns the cgroup of a store and creates it on first use.
func (r *rig) group(store string) (string, error) {
	if group, ok := r.groups[store]; ok {
		return group, nil
	}
	group, err := cgroup.Make(r.memory)
	if err != nil {
		return "", err
	}
	if r.groups == nil {
		r.groups = map[string]string{}
	}
	r.groups[store] = group
	return group, nil
}

// command returns the path of a command of this project; the first call builds all.
func (r *rig) command(name string) (string, error) {
	if r.bin == "" {
		bin := filepath.Join(r.dir, "bin")
		if _, err := process.Build(bin); err != nil {
			return "", err
		}
		r.bin = bin
	}
	return filepath.Join(r.bin, name), nil
}

// installed finds a rival's command.
func installed(command, install string) (string, error) {
	path, err := exec.LookPath(command)
	if err != nil {
		return "", missingError{command, install}
	}
	return path, nil
}
