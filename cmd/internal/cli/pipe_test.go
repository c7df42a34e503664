package cli

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// pipeTestCommand is the environment variable with the command of a child process of
// TestClosedPipes.
const pipeTestCommand = "CLI_PIPE_TEST_COMMAND"

// TestClosedPipes: a command that prints data ends at a closed pipe; one that logs continues, and
// keeps its recent log.
func TestClosedPipes(t *testing.T) {
	if command := os.Getenv(pipeTestCommand); command != "" {
		os.Args = []string{"tool", command}
		Main(newPipeTestRoot)
	}
	child := func(command string) *exec.Cmd {
		cmd := exec.Command(os.Args[0], "-test.run=^TestClosedPipes$")
		cmd.Env = append(os.Environ(), pipeTestCommand+"="+command)
		return cmd
	}
	reader, closed, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	defer closed.Close()

	logging := child("log")
	logging.Stderr = closed
	output, err := logging.Output()
	require.NoError(t, err)
	require.Equal(t, "both lines are kept\n", string(output))

	printing := child("print")
	var stderr bytes.Buffer
	printing.Stdout, printing.Stderr = closed, &stderr
	var exit *exec.ExitError
	require.ErrorAs(t, printing.Run(), &exit)
	status, ok := exit.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	require.True(t, status.Signaled() && status.Signal() == syscall.SIGPIPE, "%v: %s", exit, stderr.String())
	require.Empty(t, stderr.String())
}

func newPipeTestRoot(env *Env) *cobra.Command {
	root := &cobra.Command{Use: "tool", Args: cobra.NoArgs, RunE: NeedsCommand}
	printed := func(text string) error {
		out := NewOutput(env.Stdout)
		out.Printf("%s\n", text)
		return out.Flush()
	}
	root.AddCommand(&cobra.Command{Use: "log", RunE: func(*cobra.Command, []string) error {
		env.Log.Info("first")
		env.Log.Info("second")
		if recent := env.Recent.String(); !strings.Contains(recent, "first") || !strings.Contains(recent, "second") {
			return errors.New("the recent log lacks a line")
		}
		return printed("both lines are kept")
	}}, &cobra.Command{Use: "print", RunE: func(*cobra.Command, []string) error { return printed("data") }})
	return root
}
