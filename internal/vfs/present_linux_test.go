package vfs

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// mappedPages returns the number of mapped pages.
func mappedPages(t *testing.T, mapping []byte) (n int) {
	t.Helper()
	pagemap, err := os.Open("/proc/self/pagemap")
	require.NoError(t, err)
	defer pagemap.Close()
	page := os.Getpagesize()
	first := int64(uintptr(unsafe.Pointer(&mapping[0]))) / int64(page)
	entries := make([]byte, 8*((len(mapping)+page-1)/page))
	_, err = pagemap.ReadAt(entries, 8*first)
	require.NoError(t, err)
	for ; len(entries) > 0; entries = entries[8:] {
		if binary.LittleEndian.Uint64(entries)>>63 != 0 {
			n++
		}
	}
	return n
}

func TestAdvisePresentMapsCachedPagesOnly(t *testing.T) {
	page := os.Getpagesize()
	const pages = 3*presentStepBytes/4096 + 1
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, make([]byte, pages*page-1), 0o600))
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, file.Sync())
	mapping, err := mapFile(file, pages*page-1)
	require.NoError(t, err)
	defer mapping.Close()
	inMemory := func() (n int) {
		present := make([]byte, pages)
		require.NoError(t, mincore(mapping.Bytes(), present))
		for _, p := range present {
			n += int(p & 1)
		}
		return n
	}
	require.Zero(t, mappedPages(t, mapping.Bytes()))

	// Evict half of it.
	require.NoError(t, unix.Fadvise(int(file.Fd()), 0, int64(pages/2*page), unix.FADV_DONTNEED))
	there := inMemory()
	if there == pages {
		t.Log("this file system keeps everything in memory")
	}
	require.NoError(t, mapping.Advise(AdvisePresent))
	require.Equal(t, there, mappedPages(t, mapping.Bytes()))
	require.Equal(t, there, inMemory())
	require.NotZero(t, there)
}
