package queue

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

// TestCovering looks up the rewrites of a segment among random ones.
func TestCovering(t *testing.T) {
	var names []string
	runs := []rewriteRun{{1, 9, 1}, {1, 3, 1}, {4, 9, 1}, {5, 5, 1}, {1, 9, 3}, {12, 12, 1}, {20, 30, 2}, {25, 26, 1}}
	for _, run := range runs {
		names = append(names, run.name())
	}
	mem := vfs.NewMem()
	l, err := list(mem, "/")
	require.NoError(t, err)
	require.Empty(t, l.covering(1))
	for _, name := range names {
		require.NoError(t, vfs.WriteFileAtomic(mem, "/"+name, nil))
	}
	l, err = list(mem, "/")
	require.NoError(t, err)
	for n := SegmentID(1); n < 40; n++ {
		var want []rewriteRun
		for _, run := range runs {
			if run.covers(n) {
				want = append(want, run)
			}
		}
		got := l.covering(n)
		require.ElementsMatch(t, want, got, "segment %d", n)
		require.True(t, slices.IsSortedFunc(got, func(a, b rewriteRun) int { return int(b.generation) - int(a.generation) }))
	}
}
