// Package process starts and observes the processes of the benchmarks: the commands of this project,
// rivals, and children of the benchmark itself.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Process is a running process.
type Process struct {
	Cmd    *exec.Cmd
	Ended  chan struct{} // closed when the process has ended
	name   string
	output bytes.Buffer
	err    error // of Wait; valid after Ended
}

// Start starts a command. Errors contain its output, unless the caller has set one.
func Start(name string, cmd *exec.Cmd) (*Process, error) {
	p := &Process{Cmd: cmd, Ended: make(chan struct{}), name: name}
	if cmd.Stdout == nil && cmd.Stderr == nil {
		cmd.Stdout, cmd.Stderr = &p.output, &p.output
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = cmd.Wait()
		close(p.Ended)
	}()
	return p, nil
}

// Command returns a command that gets SIGTERM when ctx ends, and a minute to clean up.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	return cmd
}

// roleVariable is the environment variable with the role of a child.
const roleVariable = "BENCH_CHILD"

// Child returns a command that runs the program of this process in a role.
func Child(role string, args ...string) *exec.Cmd {
	program, err := os.Executable()
	if err != nil {
		program = os.Args[0]
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	return cmd
}

// Role returns the role of this process, empty if it is not a child.
func Role() string { return os.Getenv(roleVariable) }

// TestMain runs main if the test binary is started as a child, and otherwise the tests.
func TestMain(tests interface{ Run() int }, main func()) {
	if Role() == "" {
		os.Exit(tests.Run())
	}
	main()
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.Cmd.Process.Pid }

// Stop ends a process with SIGTERM; p may be nil.
func (p *Process) Stop() error {
	if p == nil {
		return nil
	}
	return p.End(syscall.SIGTERM)
}

// End sends a signal and waits until the process has ended. Ending by a signal is no error.
func (p *Process) End(signal os.Signal) error {
	if err := p.Cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return p.Wait()
}

// Wait waits until the process has ended. Ending by a signal is no error.
func (p *Process) Wait() error {
	<-p.Ended
	if status := (*exec.ExitError)(nil); errors.As(p.err, &status) && status.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
		return nil
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w\n%s", p.name, p.err, p.output.Bytes())
	}
	return nil
}

// EndedEarly returns the error of a process that has ended and should not have.
func (p *Process) EndedEarly() error {
	return errors.Join(fmt.Errorf("%s has ended\n%s", p.name, p.output.Bytes()), p.err)
}

// WaitFor waits until ready returns nil. It fails when the process or ctx ends.
func (p *Process) WaitFor(ctx context.Context, ready func() error) error {
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.Ended:
			return p.EndedEarly()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", p.name, errors.Join(ctx.Err(), err))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Listening waits until the process accepts TCP connections at an address.
func (p *Process) Listening(ctx context.Context, address string) error {
	return p.WaitFor(ctx, func() error {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// Ready waits until an HTTP server of the process answers a GET request with status 200.
func (p *Process) Ready(ctx context.Context, url string) error {
	return p.WaitFor(ctx, func() error {
		response, err := http.Get(url)
		if err != nil {
			return err
		}
		_ = response.Body.Close() // the status is sufficient
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: status %s", url, response.Status)
		}
		return nil
	})
}

// FreeAddresses sets addresses to unused local ones.
func FreeAddresses(addresses ...*string) (err error) {
	for _, a := range addresses {
		if *a, err = FreeAddress(); err != nil {
			return err
		}
	}
	return nil
}

// FreeAddress returns an unused local address.
func FreeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// Build builds docstore-updater and docserviced in dir and returns the root of their module.
func Build(dir string) (root string, err error) {
	found, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "docstore").Output()
	if err != nil {
		return "", fmt.Errorf("finding the module: %w", err)
	}
	root = string(bytes.TrimSpace(found))
	build := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "./cmd/docstore-updater", "./cmd/docserviced")
	build.Dir = root // bench is another module
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the commands: %w\n%s", err, out)
	}
	return root, nil
}

// tick is the unit of processor time in /proc.
const tick = 10 * time.Millisecond

// CPU returns the processor time of a process, its own and the kernel's for it.
func CPU(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, can have any bytes; the times are the 12th and 13th field after it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %d fields after the name, want 13", pid, len(fields))
	}
	user, userErr := strconv.ParseInt(fields[11], 10, 64)
	system, systemErr := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick, errors.Join(userErr, systemErr)
}

// Memory returns a memory figure of a process in bytes, for example VmRSS.
func Memory(pid int, name string) (int64, error) {
	kilobytes, err := Field(pid, "status", name)
	return kilobytes << 10, err
}

// Field returns the number of a field of a file of /proc/PID.
func Field(pid int, file, name string) (int64, error) {
	path := fmt.Sprintf("/proc/%d/%s", pid, file)
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(content)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, name)
}

// OwnCPU returns the processor time of this process.
func OwnCPU() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // cannot fail
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// CPUSeconds returns the processor time of processes and their children. Ended ones count as 0.
func CPUSeconds(processes []*Process) (total float64) {
	for _, pid := range family(processes) {
		cpu, _ := CPU(pid)
		total += cpu.Seconds()
	}
	return total
}

// AnonymousBytes returns the anonymous memory of processes and their children. Ended ones count as 0.
func AnonymousBytes(processes []*Process) (total int64) {
	for _, pid := range family(processes) {
		n, _ := Memory(pid, "RssAnon")
		total += n
	}
	return total
}

// family returns the ids of processes and their children.
func family(processes []*Process) (all []int) {
	for _, p := range processes {
		all = append(all, p.Pid())
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.Pid(), p.Pid()))
		for _, field := range strings.Fields(string(children)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}
