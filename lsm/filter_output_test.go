package lsm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/bloom"
	"docstore/internal/testseed"
)

// TestFilterOutput builds filters of keys of all lengths: they are those of a
// bloom.Builder, and keys may be overwritten after add.
func TestFilterOutput(t *testing.T) {
	r := testseed.Rand(t)
	for _, count := range []int{1, 10, keyListBytes / 8, 20_000} {
		f := newFilterOutput(nil)
		want := bloom.NewBuilder(nil)
		var key []byte
		for i := range count {
			key = fmt.Appendf(key[:0], "%08d%0*d", i, r.IntN(20), 0)
			f.add(key)
			want.Add(key)
		}
		require.Equal(t, want.Finish(nil), f.finish())
		f.stop()
	}
	f := newFilterOutput(nil)
	f.add(make([]byte, MaxKeyBytes))
	f.stop()
}
