package queue_test

import (
	"os"
	"syscall"
	"testing"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/internal/queuetest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestReadAheadAvoidsFaults: after ReadAhead a batch that was not in memory waits for few
// pages, and without it for many.
func TestReadAheadAvoidsFaults(t *testing.T) {
	const documents, every = 4000, 100
	dir := t.TempDir()
	opts := queuetest.Options(vfs.OS)
	opts.Codec, opts.BlockBytes = "none", 64<<10
	w, err := queue.OpenWriter(dir, opts)
	require.NoError(t, err)
	var wanted []queue.Wanted
	for i := range documents {
		id := []byte{byte(i >> 8), byte(i)}
		at, err := w.Append(id, make([]byte, 4<<10))
		require.NoError(t, err)
		if i%every == 0 {
			wanted = append(wanted, queue.Wanted{ID: id, Address: at})
		}
	}
	require.NoError(t, w.Close())
	r, err := queue.OpenReader(dir, nil)
	require.NoError(t, err)
	defer r.Close()
	waits := func(ahead bool) int64 {
		_, err := r.Document(nil, wanted[0].Address) // map the file
		require.NoError(t, err)
		f := r.Files().Get(1)
		defer r.Files().Put(f)
		require.NoError(t, f.Mapping.Advise(vfs.AdviseDontNeed))
		require.NoError(t, f.Mapping.Advise(vfs.AdviseRandom))
		file, err := os.OpenFile(f.Path, os.O_RDWR, 0)
		require.NoError(t, err)
		defer file.Close()
		require.NoError(t, file.Sync())
		require.NoError(t, unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED))
		if ahead {
			r.ReadAhead(wanted)
		}
		before := majorFaults(t)
		n := 0
		r.StoredForAll(nil, wanted, 0, func(_ int, dst []byte, _ bool, err error) ([]byte, bool) {
			require.NoError(t, err)
			n++
			return dst[:0], true
		})
		require.Equal(t, len(wanted), n)
		return majorFaults(t) - before
	}
	with, without := waits(true), waits(false)
	t.Logf("%d documents: %d faults after ReadAhead, %d without", len(wanted), with, without)
	require.Less(t, with, int64(len(wanted)/4))
	if without < int64(len(wanted)) {
		t.Skip("the batch does not wait without ReadAhead either: the test's directory is in memory or on a fast disk")
	}
}

// majorFaults returns the number of pages for which this process has waited for the disk.
func majorFaults(t *testing.T) int64 {
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return usage.Majflt
}
