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

// TestRegionsAreIndependent: releasing a region does not change another.
func TestRegionsAreIndependent(t *testing.T) {
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

// TestTouched counts memory by page, and by huge page in regions that have them.
func TestTouched(t *testing.T) {
	small := New(100, 0)
	require.Equal(t, 0, small.Touched(0))
	require.Equal(t, 100, small.Touched(1))
	r := New(4*hugeBytes+1, hugeBytes)
	defer r.Release()
	require.Equal(t, pageBytes, r.Touched(1))
	require.Equal(t, hugeBytes, r.Touched(hugeBytes))
	if r.mapped == nil {
		return // a slice of the heap has no huge pages
	}
	require.Equal(t, 2*hugeBytes, r.Touched(hugeBytes+1))
	require.Equal(t, 4*hugeBytes, r.Touched(4*hugeBytes))
	require.Equal(t, 4*hugeBytes+1, r.Touched(4*hugeBytes+1))
}

// TestPool: a pool returns regions of equal size, keeps at most maxSpare, and none when
// closed.
func TestPool(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("regions are mapped, and kept, on Linux only")
	}
	var kept int64
	p := Pool{Grown: func(bytes int64) { kept += bytes }}
	sizes := []int{leastBytes, leastBytes + 1, leastBytes + 2}
	for i, size := range sizes {
		r, touched := p.New(size, 0)
		require.Zero(t, touched)
		r.Bytes()[0] = 1
		p.Release(r, i+1)
	}
	require.Len(t, p.mu.spare, maxSpare)
	require.EqualValues(t, 2+3, kept)
	r, touched := p.New(sizes[1], 0)
	require.Equal(t, 2, touched)
	require.EqualValues(t, 3, kept)
	require.Len(t, r.Bytes(), sizes[1])
	_, touched = p.New(sizes[0], 0)
	require.Zero(t, touched, "the oldest was released")
	p.Close()
	require.Zero(t, kept)
	p.Release(r, 1)
	require.Zero(t, kept)

	var none *Pool
	r, touched = none.New(leastBytes, 0)
	require.Zero(t, touched)
	none.Release(r, 1)
}

// TestPoolLimit: regions that are too large are not kept.
func TestPoolLimit(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("regions are mapped, and kept, on Linux only")
	}
	limit, kept := int64(100), int64(0)
	p := Pool{Limit: func() int64 { return limit }, Grown: func(bytes int64) { kept += bytes }}
	defer p.Close()
	p.Release(New(leastBytes, 0), 101)
	require.Zero(t, kept)
	p.Release(New(leastBytes, 0), 50)
	p.Release(New(leastBytes, 0), 100)
	require.EqualValues(t, 150, kept)
	p.Release(New(leastBytes, 0), 51)
	require.EqualValues(t, 51, kept, "two regions may take 150 bytes")
	limit = 10
	p.Clear()
	require.Zero(t, kept)
}
