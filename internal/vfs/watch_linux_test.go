package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestWatchDir(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	before := openDescriptors(t)
	dir := t.TempDir()
	w, err := WatchDir(OS, dir)
	require.NoError(t, err)
	name := filepath.Join(dir, "file")
	f, err := OS.Create(name)
	require.NoError(t, err)
	<-w.C
	_, err = f.Write([]byte("x"))
	require.NoError(t, err)
	<-w.C
	require.NoError(t, f.Close())
	require.NoError(t, OS.Rename(name, name+".seg"))
	<-w.C
	require.NoError(t, w.Close())
	require.Equal(t, before, openDescriptors(t))
}

func TestWatchDirRefused(t *testing.T) {
	before := openDescriptors(t)
	_, err := WatchDir(OS, filepath.Join(t.TempDir(), "missing"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = WatchDir(NewMem(), "/")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.Equal(t, before, openDescriptors(t))
}

func openDescriptors(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}
