package offheap

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRegionIsZeroAndWritable(t *testing.T) {
	for _, size := range []int{0, 1, 4096, 4097, 9<<20 + 1} {
		r := New(size, 1<<20)
		require.Len(t, r.Bytes(), size)
		require.Equal(t, size, bytes.Count(r.Bytes(), []byte{0}))
		want := make([]byte, size)
		for i := range want {
			want[i] = byte(i % 251)
		}
		copy(r.Bytes(), want)
		require.True(t, bytes.Equal(want, r.Bytes()))
		r.Release()
	}
}

// TestRegionsAreApart has what one holds left alone when another goes.
func TestRegionsAreApart(t *testing.T) {
	var regions []Region
	for i := range 20 {
		r := New(100<<10, 0)
		copy(r.Bytes(), bytes.Repeat([]byte{byte(i)}, len(r.Bytes())))
		regions = append(regions, r)
	}
	for i, r := range regions {
		require.Equal(t, len(r.Bytes()), bytes.Count(r.Bytes(), []byte{byte(i)}))
		r.Release()
	}
}

// TestPool hands a region to who needs one of its size, keeps few, and none when closed.
func TestPool(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("regions are mapped, and kept, on Linux only")
	}
	var p Pool
	sizes := []int{leastBytes, leastBytes + 1, leastBytes + 2}
	for _, size := range sizes {
		r, fresh := p.New(size, 0)
		require.True(t, fresh)
		r.Bytes()[0] = 1
		p.Release(r)
	}
	require.Len(t, p.mu.spare, maxSpare)
	r, fresh := p.New(sizes[1], 0)
	require.False(t, fresh)
	require.Len(t, r.Bytes(), sizes[1])
	_, fresh = p.New(sizes[0], 0)
	require.True(t, fresh, "the oldest has gone")
	p.Close()
	require.Empty(t, p.mu.spare)
	p.Release(r)
	require.Empty(t, p.mu.spare)

	var none *Pool
	r, fresh = none.New(leastBytes, 0)
	require.True(t, fresh)
	none.Release(r)
}
