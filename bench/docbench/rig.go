package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"docstore/bench/internal/cgroup"
)

// rig is where stores live: a directory, and our own commands, built.
type rig struct {
	dir    string
	bin    string            // empty until needed
	memory int64             // bytes that the servers of a store may have together, in a cgroup; 0 is no bound
	groups map[string]string // the cgroup of each store
}

// stop removes what start has made, when all servers have ended.
func (r *rig) stop() (err error) {
	for _, group := range r.groups {
		err = errors.Join(err, os.Remove(group))
	}
	return err
}

// process is a server that runs.
type process struct {
	name   string
	cmd    *exec.Cmd
	output bytes.Buffer  // to be read when it has ended
	ended  chan struct{} // closed then
	err    error         // how it did
}

// start runs a server of a store. Where memory is bounded all servers of the store share
// its bound, those that have ended too: what they have read is in memory still.
func (r *rig) start(store, name string, args ...string) (*process, error) {
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

// group is the cgroup of a store, which is made the first time.
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

// startWith runs a command that is prepared in a way of its own.
func (r *rig) startWith(prepare func(*exec.Cmd), called, name string, args ...string) (*process, error) {
	p := &process{name: called, cmd: exec.Command(name, args...), ended: make(chan struct{})}
	prepare(p.cmd)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// stop ends a process that was started, nil for none.
func (p *process) stop() error {
	if p == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	if status := (*exec.ExitError)(nil); errors.As(p.err, &status) && status.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
		return nil // by us
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w\n%s", p.name, p.err, p.output.Bytes())
	}
	return nil
}

// endedEarly is the error that it was not to end.
func (p *process) endedEarly() error {
	return errors.Join(fmt.Errorf("%s has ended\n%s", p.name, p.output.Bytes()), p.err)
}

// listening waits until something listens at an address.
func (p *process) listening(ctx context.Context, address string) error {
	for {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.ended:
			return p.endedEarly()
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// clockTick is the unit of processor time in /proc.
const clockTick = 100

// cpuSeconds is the processor time of processes and of their children's so far.
func cpuSeconds(processes []*process) float64 {
	total := 0.0
	for _, pid := range pids(processes) {
		content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // one that has ended counts no more
		_, rest, _ := strings.Cut(string(content), ") ")
		if fields := strings.Fields(rest); len(fields) > 12 {
			user, _ := strconv.ParseFloat(fields[11], 64)
			system, _ := strconv.ParseFloat(fields[12], 64)
			total += (user + system) / clockTick
		}
	}
	return total
}

// anonymousBytes is the memory of processes that is not a file's.
func anonymousBytes(processes []*process) (total int64) {
	for _, pid := range pids(processes) {
		content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		_, rest, _ := strings.Cut(string(content), "RssAnon:")
		if fields := strings.Fields(rest); len(fields) > 0 {
			kilobytes, _ := strconv.ParseInt(fields[0], 10, 64)
			total += kilobytes << 10
		}
	}
	return total
}

// pids are those of processes and of their children.
func pids(processes []*process) (all []int) {
	for _, p := range processes {
		pid := p.cmd.Process.Pid
		all = append(all, pid)
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		for _, field := range strings.Fields(string(children)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// freeAddress is a local address that nobody listens at now.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// command is the path of one of our own, which are built the first time.
func (r *rig) command(name string) (string, error) {
	if r.bin == "" {
		root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "docstore").Output()
		if err != nil {
			return "", fmt.Errorf("finding the module: %w", err)
		}
		bin := filepath.Join(r.dir, "bin")
		build := exec.Command("go", "build", "-o", bin+string(filepath.Separator), "./cmd/docstore-updater", "./cmd/docserviced")
		build.Dir = string(bytes.TrimSpace(root)) // bench/ has a go.mod of its own
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("building the commands: %w\n%s", err, out)
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
			return nil // what works there removes files meanwhile
		}
		return err
	})
	return total, err
}
