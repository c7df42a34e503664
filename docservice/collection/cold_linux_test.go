package collection

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"docstore/docservice"
	"docstore/internal/vfs"
)

// TestColdReads reads a collection that is not in memory until its reads count as cold, and
// compares the answers.
func TestColdReads(t *testing.T) {
	const documents, batch, rounds = 3000, 50, 200
	dir := t.TempDir()
	f := newFixture(t, vfs.OS, dir)
	f.putMany("a", documents)
	f.seal()
	c := f.ready()
	index := c.serving.Load().index
	require.NoError(t, index.Flush())
	require.NoError(t, index.WaitIdle(t.Context()))
	faults := majorFaults(t)
	coldReads := func() ColdReads {
		_, segments, ok := c.ColdReads()
		require.True(t, ok)
		return segments
	}
	for round := 0; coldReads().Count < 10; round++ {
		if round == rounds {
			require.Zero(t, majorFaults(t)-faults, "%d rounds waited for the disk, and their reads do not count as cold", rounds)
			t.Skip("the test's directory stays in memory")
		}
		dropPages(t, dir)
		var ids [][]byte
		for i := range batch {
			id := fmt.Sprintf("a-%d", (i*documents/batch+round)%documents)
			ids = append(ids, []byte(id))
		}
		if round%2 == 0 {
			for _, id := range ids[:10] {
				requireDocument(t, c, string(id), documentOf(string(id)))
			}
		}
		_, answers, err := c.GetMany(nil, ids, docservice.MaxReplyBytes)
		require.NoError(t, err)
		require.Len(t, answers, batch)
		for i, answer := range answers {
			require.NoError(t, answer.Err)
			require.Equal(t, documentOf(string(ids[i])), string(answer.Document))
		}
	}
	got := c.Residency()
	require.Positive(t, got.Segments.MappedBytes)
	require.Positive(t, got.Index.MappedBytes)
	require.Positive(t, coldReads().Sum)
}

// majorFaults returns the number of pages for which this process has waited for the disk.
func majorFaults(t *testing.T) int64 {
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return usage.Majflt
}

// dropPages removes the files below a directory from memory. Mapped pages stay in the page
// cache, so it unmaps those of this process first.
func dropPages(t testing.TB, dir string) {
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	for line := range strings.Lines(string(maps)) {
		if !strings.Contains(line, dir+"/") {
			continue
		}
		var from, to uintptr
		_, err := fmt.Sscanf(line, "%x-%x", &from, &to)
		require.NoError(t, err)
		mapped := unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&from))), to-from)
		require.NoError(t, unix.Madvise(mapped, unix.MADV_DONTNEED))
	}
	require.NoError(t, filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := file.Sync(); err != nil { // only clean pages can be dropped
			return err
		}
		return unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)
	}))
}
