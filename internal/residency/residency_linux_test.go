package residency

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// mappedFile maps a file of so many pages and drops it from memory. It skips the test where
// pages cannot be dropped, for example on tmpfs.
func mappedFile(t *testing.T, pages int) []byte {
	bytes := pages * os.Getpagesize()
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, make([]byte, bytes), 0o600))
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { file.Close() })
	require.NoError(t, file.Sync())
	require.NoError(t, unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED))
	mapped, err := unix.Mmap(int(file.Fd()), 0, bytes, unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(mapped)) })
	require.NoError(t, unix.Madvise(mapped, unix.MADV_RANDOM))
	if len(present(t, mapped)) > 0 {
		t.Skip("the pages of the test's directory stay in memory")
	}
	return mapped
}

// present returns the pages that are in memory.
func present(t *testing.T, mapped []byte) (pages []int) {
	for at := 0; at < len(mapped); at += os.Getpagesize() {
		here, ok := isPresent(&mapped[at])
		require.True(t, ok)
		if here {
			pages = append(pages, at/os.Getpagesize())
		}
	}
	return pages
}

// requireRead waits until pages are in memory.
func requireRead(t *testing.T, mapped []byte, pages []int) {
	require.Eventually(t, func() bool {
		for _, page := range pages {
			if here, ok := isPresent(&mapped[page*os.Getpagesize()]); !ok || !here {
				return false
			}
		}
		return true
	}, time.Minute, time.Millisecond)
}

// TestRangesAreRead: the pages of the ranges arrive, by one system call for many ranges and
// by one for each, and few others.
func TestRangesAreRead(t *testing.T) {
	page := os.Getpagesize()
	for _, vectors := range []bool{true, false} {
		mapped := mappedFile(t, 4096)
		was := withoutVectors.Swap(!vectors)
		t.Cleanup(func() { withoutVectors.Store(was) })
		var r Ranges
		var want []int
		add := func(from, to int) { r.Add(mapped[from:to]) }
		add(0, 0)
		for i := range maxRanges + 100 { // more than one system call
			add(3*i*page+100, 3*i*page+101)
			want = append(want, 3*i)
		}
		add(4001*page-1, 4002*page+1)
		want = append(want, 4000, 4001, 4002)
		before := pagesRead()
		r.Read()
		require.Empty(t, r.vectors)
		requireRead(t, mapped, want)
		require.Less(t, len(present(t, mapped)), 2*len(want))
		require.GreaterOrEqual(t, pagesRead()-before, uint64(len(want)))
	}
}

func TestShare(t *testing.T) {
	_, bytes := Share(nil)
	require.Zero(t, bytes)
	mapped := mappedFile(t, 1000)
	var r Ranges
	r.Add(mapped[:250*os.Getpagesize()])
	r.Read()
	var want []int
	for i := range 250 {
		want = append(want, i)
	}
	requireRead(t, mapped, want)
	share, bytes := Share([][]byte{mapped[:100], mapped[100:7000], nil, mapped[7000:]})
	require.EqualValues(t, len(mapped), bytes)
	require.InDelta(t, 0.25, share, 0.1, "more than seven standard errors")
}

func TestAllPresent(t *testing.T) {
	require.True(t, AllPresent(nil))
	require.True(t, AllPresent(bytes.Repeat([]byte{1}, 100_000)))
	mapped, page := mappedFile(t, 8), os.Getpagesize()
	require.False(t, AllPresent(mapped))
	require.Zero(t, mapped[2*page]+mapped[3*page]) // reads both pages
	require.True(t, AllPresent(mapped[2*page+1:4*page]))
	require.True(t, AllPresent(mapped[3*page-1:3*page+1]), "a part of two pages")
	require.False(t, AllPresent(mapped[3*page:4*page+1]), "a byte of the next page")
	require.False(t, AllPresent(mapped[2*page-1:3*page]))
}
