package main

import (
	"errors"
	"io/fs"
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
func (r *rig) start(store, name string, args ...string) (*process.Process, error) {
	called := name
	if r.memory > 0 {
		group, err := r.group(store)
		if err != nil {
			return nil, err
		}
		name, args = cgroup.Command(group, name, args...)
	}
	return r.startWith(func(*exec.Cmd) {}, filepath.Base(called), name, args...)
}

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

// startWith runs a command after prepare has changed it.
func (r *rig) startWith(prepare func(*exec.Cmd), called, name string, args ...string) (*process.Process, error) {
	cmd := exec.Command(name, args...)
	prepare(cmd)
	return process.Start(called, cmd)
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

// bytesIn is the size of all files below a directory.
func bytesIn(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry os.DirEntry, err error) error {
		var info os.FileInfo
		if err == nil && !entry.IsDir() {
			if info, err = entry.Info(); err == nil {
				total += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a file that was removed meanwhile
		}
		return err
	})
	return total, err
}
