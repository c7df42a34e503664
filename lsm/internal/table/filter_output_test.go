package table

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/bloom"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/lsm/internal/kv"
)

// TestFilterOutput builds filters of keys of all lengths: they are those of a
// bloom.Builder, also if most pages are in the spool's file, and keys may be overwritten
// after add.
func TestFilterOutput(t *testing.T) {
	r := testseed.Rand(t)
	for _, count := range []int{1, 10, keyListBytes / 8, 20_000, 1<<20 + 1} {
		spool := &spool{fs: vfs.NewMem(), path: "spool", charge: &memoryCharge{count: func(int64) {}}}
		f := newFilterOutput(nil, spool)
		want := bloom.NewBuilder(nil)
		var key []byte
		for i := range count {
			key = fmt.Appendf(key[:0], "%08d%0*d", i, r.IntN(20), 0)
			f.add(key)
			want.Add(key)
		}
		var got []byte
		require.NoError(t, f.finish(func(p []byte) error {
			got = append(got, p...)
			return nil
		}))
		require.Equal(t, want.Finish(nil), got)
		require.Equal(t, count > 1<<20, spool.mu.file != nil)
		f.stop()
	}
	f := newFilterOutput(nil, &spool{charge: &memoryCharge{count: func(int64) {}}})
	f.add(make([]byte, kv.MaxKeyBytes))
	f.stop()
}
