package segment

import (
	"slices"
	"testing"

	"docstore/internal/vfs"

	"github.com/stretchr/testify/require"
)

// TestCovering looks up the rewrites of a segment among random ones.
func TestCovering(t *testing.T) {
	var names []string
	runs := []Run{{1, 9, 1}, {1, 3, 1}, {4, 9, 1}, {5, 5, 1}, {1, 9, 3}, {12, 12, 1}, {20, 30, 2}, {25, 26, 1}}
	for _, run := range runs {
		names = append(names, run.Name())
	}
	mem := vfs.NewMem()
	l, err := List(mem, "/")
	require.NoError(t, err)
	require.Empty(t, l.Covering(1))
	for _, name := range names {
		require.NoError(t, vfs.WriteFileAtomic(mem, "/"+name, nil))
	}
	l, err = List(mem, "/")
	require.NoError(t, err)
	for n := ID(1); n < 40; n++ {
		var want []Run
		for _, run := range runs {
			if run.Covers(n) {
				want = append(want, run)
			}
		}
		got := l.Covering(n)
		require.ElementsMatch(t, want, got, "segment %d", n)
		require.True(t, slices.IsSortedFunc(got, func(a, b Run) int { return int(b.Generation) - int(a.Generation) }))
	}
}
