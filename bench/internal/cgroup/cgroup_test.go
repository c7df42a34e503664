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
	cmd := exec.Command("cat", "/proc/self/cgroup")
	Enclose(cmd, dir)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "/"+filepath.Base(dir))
	require.NoError(t, os.Remove(dir))
}
