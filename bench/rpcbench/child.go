package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
)

// A child is a server in a process of its own. It prints its address, then for
// every line on its standard input how many objects it has allocated, and ends
// with its standard input.
type child struct {
	process *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	address string
}

func startChild(contestant string) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{process: exec.Command(program, "-serve", contestant)}
	c.process.Stderr = os.Stderr
	if c.in, err = c.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewScanner(out)
	if err := c.process.Start(); err != nil {
		return nil, err
	}
	if !c.out.Scan() {
		return nil, errors.Join(fmt.Errorf("the server of %s does not start", contestant), c.stop())
	}
	c.address = c.out.Text()
	return c, nil
}

func (c *child) mallocs() (uint64, error) {
	if _, err := io.WriteString(c.in, "\n"); err != nil {
		return 0, err
	}
	if !c.out.Scan() {
		return 0, errors.New("the server has ended")
	}
	return strconv.ParseUint(strings.TrimSpace(c.out.Text()), 10, 64)
}

func (c *child) stop() error {
	return errors.Join(c.in.Close(), c.process.Wait())
}

// serveChild is the child's side.
func serveChild(name string) error {
	contestant, err := contestantNamed(name)
	if err != nil {
		return err
	}
	address, err := contestant.serve()
	if err != nil {
		return err
	}
	fmt.Println(address)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		fmt.Println(stats.Mallocs)
	}
	return nil
}
