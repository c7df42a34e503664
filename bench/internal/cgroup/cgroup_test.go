package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestACommandRunsInTheGroup(t *testing.T) {
	dir, err := Make(64 << 20)
	if err != nil {
		t.Skip(err)
	}
	name, args := Command(dir, "cat", "/proc/self/cgroup")
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "/"+filepath.Base(dir))
	require.NoError(t, os.Remove(dir))
}
