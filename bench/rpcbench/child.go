package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"docstore/bench/internal/process"
)

// A child is a server in a child process. It prints its address, then for each line on standard input
// the number of allocated objects, after a garbage collection if the line asks for one. It ends with
// standard input.
type child struct {
	process *process.Process
	in      io.WriteCloser
	out     *bufio.Scanner
	address string
}

func startChild(contestant string) (*child, error) {
	cmd := process.Child(contestant)
	cmd.Stderr = os.Stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, err
	}
	c := &child{in: in, out: bufio.NewScanner(out)}
	var err error
	if c.process, err = process.Start(contestant, cmd); err != nil {
		return nil, err
	}
	if !c.out.Scan() {
		return nil, errors.Join(fmt.Errorf("the server of %s did not start", contestant), c.stop())
	}
	c.address = c.out.Text()
	return c, nil
}

// startChildren starts the server of each contestant. The caller must call stop, also after an error.
func startChildren(names []string) (servers []*child, stop func() error, err error) {
	stop = func() (err error) {
		for _, server := range servers {
			err = errors.Join(err, server.stop())
		}
		return err
	}
	for _, name := range names {
		server, err := startChild(name)
		if err != nil {
			return servers, stop, err
		}
		servers = append(servers, server)
	}
	return servers, stop, nil
}

// mallocs returns the number of objects that the server has allocated.
func (c *child) mallocs() (uint64, error) { return c.ask("") }

// collected returns the memory of the server after a garbage collection, in bytes.
func (c *child) collected() (int64, error) {
	if _, err := c.ask(collectLine); err != nil {
		return 0, err
	}
	return process.Memory(c.pid(), "VmRSS")
}

// collectLine makes a child free unused memory.
const collectLine = "collect"

func (c *child) ask(line string) (uint64, error) {
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		return 0, err
	}
	if !c.out.Scan() {
		return 0, errors.New("the server has ended")
	}
	return strconv.ParseUint(strings.TrimSpace(c.out.Text()), 10, 64)
}

func (c *child) pid() int { return c.process.Pid() }

func (c *child) stop() error {
	return errors.Join(c.in.Close(), c.process.Wait())
}

// collect frees unused memory. Two collections are needed to empty a sync.Pool.
func collect() {
	runtime.GC()
	debug.FreeOSMemory()
}

// serveChild runs the server in the child.
func serveChild(name string) error {
	address, err := contestantNamed(name).start()
	if err != nil {
		return err
	}
	fmt.Println(address)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if in.Text() == collectLine {
			collect()
		}
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		fmt.Println(stats.Mallocs)
	}
	return nil
}
