package vfs

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// childVariable is the environment variable that makes this test binary run a child
// function instead of the tests.
const childVariable = "VFS_TEST_CHILD"

var children = map[string]func(name string) error{
	"lock":     lockChild,
	"mapped":   func(name string) error { return appendChild(OS.CreateAppendMap(name, appendCapacity)) },
	"buffered": func(name string) error { return appendChild(newBufferedAppend(name, appendCapacity)) },
}

func TestMain(m *testing.M) {
	child, ok := children[os.Getenv(childVariable)]
	if !ok {
		os.Exit(m.Run())
	}
	if err := child(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// startChild runs a child function on a file; output is its standard output. kill sends
// SIGKILL; the end of the test does so, too.
func startChild(t *testing.T, child, name string) (output *os.File, kill func()) {
	t.Helper()
	output, input, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { output.Close() })
	cmd := exec.Command(os.Args[0], name)
	cmd.Env = append(os.Environ(), childVariable+"="+child)
	cmd.Stdout, cmd.Stderr = input, os.Stderr
	require.NoError(t, cmd.Start())
	input.Close()
	killed := false
	kill = func() {
		if !killed {
			killed = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(kill)
	return output, kill
}

func newBufferedAppend(name string, capacity int64) (AppendMap, error) {
	f, err := OS.Create(name)
	if err != nil {
		return nil, err
	}
	return &bufferedAppend{file: f, capacity: capacity}, nil
}
