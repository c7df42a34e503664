package table

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
)

// TestSpool writes sections of random sizes in turns: each is read as it was written, and
// the file is removed.
func TestSpool(t *testing.T) {
	r := testseed.Rand(t)
	mem := vfs.NewMem()
	counted := int64(0)
	charge := &memoryCharge{count: func(bytes int64) { counted += bytes }}
	f := &spool{fs: mem, path: "spool", charge: charge}
	sections := make([]spooled, spooledSections)
	want := make([][]byte, spooledSections)
	for i := range sections {
		sections[i].spool = f
	}
	for range r.IntN(100) {
		i := r.IntN(len(sections))
		p := make([]byte, r.IntN(spoolPieceBytes/4)<<r.IntN(4))
		for j := range p {
			p[j] = byte(r.Uint32())
		}
		require.NoError(t, sections[i].write(p))
		want[i] = append(want[i], p...)
	}
	require.LessOrEqual(t, charge.bytes.Load(), int64(spooledSections*spoolPieceBytes))
	for i := range sections {
		for range 2 {
			got := []byte{}
			require.NoError(t, sections[i].copyTo(func(p []byte) error {
				got = append(got, p...)
				return nil
			}))
			require.Equal(t, len(want[i]), len(got))
			require.Equal(t, string(want[i]), string(got))
		}
	}
	f.remove()
	f.remove()
	charge.release()
	charge.release()
	require.Zero(t, counted)
	names, err := mem.List(".")
	require.NoError(t, err)
	require.Empty(t, names)
}

// TestDamagedSpool: a section or index is not finished from bytes that changed on the disk.
func TestDamagedSpool(t *testing.T) {
	r := testseed.Rand(t)
	f := &spool{fs: vfs.NewMem(), path: "spool", charge: &memoryCharge{count: func(int64) {}}}
	defer f.remove()
	x := indexBuilder{spooled: spooled{spool: f}}
	var key []byte
	for i := 0; len(x.spooled.pieces) < 3; i++ {
		key = fmt.Appendf(key[:0], "key %010d%0*d", i, 1+r.IntN(500), 0)
		require.NoError(t, x.add(uint64(i), key))
	}
	discard := func([]byte) error { return nil }
	require.NoError(t, x.finish([]byte("key 0"), key, discard))
	for range 20 {
		at := r.Int64N(f.mu.bytes)
		if r.IntN(2) == 0 {
			at = r.Int64N(1000) // heads of the first blocks
		}
		var b [1]byte
		flip := func() {
			_, err := f.mu.file.ReadAt(b[:], at)
			require.NoError(t, err)
			b[0] ^= 1 << (at % 8)
			_, err = f.mu.file.WriteAt(b[:], at)
			require.NoError(t, err)
		}
		flip()
		require.ErrorIs(t, x.finish([]byte("key 0"), key, discard), ErrCorrupt)
		require.ErrorIs(t, x.spooled.copyTo(discard), ErrCorrupt)
		flip()
		require.NoError(t, x.finish([]byte("key 0"), key, discard))
	}
}
