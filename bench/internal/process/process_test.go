package process

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestProcess(t *testing.T) {
	p, err := Start("sleeper", exec.Command("sleep", "60"))
	require.NoError(t, err)
	n, err := Memory(p.Pid(), "VmSize")
	require.NoError(t, err)
	require.Positive(t, n)
	require.NoError(t, p.End(syscall.SIGKILL))
	require.Zero(t, CPUSeconds([]*Process{p}))

	p, err = Start("failing", exec.Command("sh", "-c", "echo the reason; exit 3"))
	require.NoError(t, err)
	require.ErrorContains(t, p.WaitFor(t.Context(), func() error { return errors.New("never") }), "the reason")
	require.ErrorContains(t, p.Stop(), "the reason")
	require.NoError(t, (*Process)(nil).Stop())

	cpu, err := CPU(os.Getpid())
	require.NoError(t, err)
	require.GreaterOrEqual(t, cpu, tick*0)
}

func TestPin(t *testing.T) {
	p, err := Start("sleeper", exec.Command("sleep", "60"))
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Stop()) }()
	processors := func() int {
		var set unix.CPUSet
		require.NoError(t, unix.SchedGetaffinity(p.Pid(), &set))
		return set.Count()
	}
	before := processors()
	unpin, err := Pin(p.Pid(), -1)
	require.NoError(t, err)
	require.Equal(t, 1, processors())
	require.NoError(t, unpin())
	require.Equal(t, before, processors())
	_, err = Pin(1<<30, 0)
	require.ErrorContains(t, err, "processors of process 1073741824")
}
