package vfs

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMakeDirAfterFailedAttempt: the first attempt fails at any operation, and the
// second finds directories that were not synced.
func TestMakeDirAfterFailedAttempt(t *testing.T) {
	for _, dir := range []string{"/a/b/c", "a/b/c"} {
		for k := int64(1); ; k++ {
			mem := NewMem()
			err := MakeDir(NewFault(mem, func(op Op) error {
				if op.N == k {
					return errInjected
				}
				return nil
			}), dir)
			if err == nil {
				require.EqualValues(t, 5, k, "one mkdir, and three parents are synced")
				break
			}
			require.ErrorIs(t, err, errInjected)
			require.NoError(t, MakeDir(mem, dir))
			info, err := mem.CrashClone(KeepSynced).Stat(dir)
			require.NoError(t, err, "%s, failed at %d", dir, k)
			assert.True(t, info.Dir)
		}
	}
}

func TestMakeDirBelowUnreadableParent(t *testing.T) {
	denied := 0
	require.NoError(t, MakeDir(NewFault(NewMem(), func(op Op) error {
		if op.Kind == OpSyncDir && op.Name == "/" {
			denied++
			return &fs.PathError{Op: "open", Path: op.Name, Err: fs.ErrPermission}
		}
		return nil
	}), "/a/b"))
	assert.Equal(t, 1, denied)
}

func TestMakeDirWhereFileExists(t *testing.T) {
	mem := NewMem()
	f, err := mem.Create("a")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Error(t, MakeDir(mem, "a"))
	require.Error(t, MakeDir(mem, "a/b"))
}
