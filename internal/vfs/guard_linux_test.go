package vfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/invariants"
)

// TestGuardCrashesOnUseAfterClose: a use after Close used to be reported as a failing
// disk.
func TestGuardCrashesOnUseAfterClose(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, make([]byte, os.Getpagesize()), 0o600))
	f, err := OS.Open(name)
	require.NoError(t, err)
	m, err := f.Map(int64(os.Getpagesize()))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	bytes := m.Bytes()
	require.NoError(t, m.Close())
	use := func() error { return Guard(func() { _ = append([]byte(nil), bytes...) }) }
	if invariants.Enabled {
		require.Panics(t, func() { _ = use() })
		return
	}
	require.ErrorIs(t, use(), ErrFault)
}
