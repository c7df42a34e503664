package vfs

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"docstore/internal/virtualtime"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Programs that write a file at the same time do not fail, and the file is always complete.
func TestWriteFileSharedByConcurrentWriters(t *testing.T) {
	const writers, writes, size = 4, 20, 8 << 10
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	content := func(i int) []byte { return []byte(strings.Repeat(string(rune('a'+i)), size)) }
	require.NoError(t, WriteFileShared(OS, name, content(0)))
	var running sync.WaitGroup
	for i := range writers {
		running.Go(func() {
			for n := range writes {
				assert.NoError(t, WriteFileShared(OS, name, content((i+n)%writers)))
				got, err := ReadFile(OS, name)
				if assert.NoError(t, err) && assert.Len(t, got, size) {
					assert.Equal(t, content(int(got[0]-'a')), got)
				}
			}
		})
	}
	running.Wait()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "a temporary file remains")
}

// TestWriteFileSharedRemovesLeftovers: temporary files of crashes are removed when they are old.
func TestWriteFileSharedRemovesLeftovers(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		mem := NewMem()
		require.NoError(t, MakeDir(mem, "/d"))
		for _, name := range []string{"file.1abc.tmp", "other.1abc.tmp", "file.x"} {
			f, err := mem.Create("/d/" + name)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
		left := func() []string {
			names, err := mem.List("/d")
			require.NoError(t, err)
			return names
		}
		require.NoError(t, WriteFileShared(mem, "/d/file", []byte("a")))
		require.Equal(t, []string{"file", "file.1abc.tmp", "file.x", "other.1abc.tmp"}, left(), "another program may write it")
		time.Sleep(2 * time.Hour)
		require.NoError(t, WriteFileShared(mem, "/d/file", []byte("b")))
		require.Equal(t, []string{"file", "file.x", "other.1abc.tmp"}, left())
	})
}

func TestWriteFileSharedKeepsTheSameContents(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, WriteFileShared(OS, name, []byte("a")))
	before, err := os.Stat(name)
	require.NoError(t, err)
	require.NoError(t, WriteFileShared(OS, name, []byte("a")))
	after, err := os.Stat(name)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "the file was written again")
	require.NoError(t, WriteFileShared(OS, name, []byte("b")))
	got, err := ReadFile(OS, name)
	require.NoError(t, err)
	require.Equal(t, "b", string(got))
}
