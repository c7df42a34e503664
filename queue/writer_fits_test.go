package queue

import (
	"math"
	"testing"

	"docstore/internal/vfs"
	"docstore/queue/internal/segment"

	"github.com/stretchr/testify/require"
)

// TestOffsetsFitIn32Bits: a segment ends before an offset could be too large, for a next
// block of any size.
func TestOffsetsFitIn32Bits(t *testing.T) {
	s := &openSegment{}
	for s.size = MaxSegmentBytes - 3*segment.MaxBlockFileBytes; s.fits(); s.size += 1 << 10 {
		require.LessOrEqual(t, s.size+segment.MaxBlockFileBytes+segment.FooterBytes, int64(MaxSegmentBytes))
		require.LessOrEqual(t, s.size, int64(math.MaxUint32))
	}
	require.Greater(t, s.size, int64(MaxSegmentBytes-2*segment.MaxBlockFileBytes))
}

// TestSegmentEndsBeforeItsRewriteIsFull: see TestRewriteOfAnySegmentFits.
func TestSegmentEndsBeforeItsRewriteIsFull(t *testing.T) {
	s := &openSegment{}
	for s.rewritten = MaxSegmentBytes - 3*segment.MaxRelocatedBytes; s.fits(); s.rewritten += 1 << 10 {
		require.LessOrEqual(t, s.rewritten+segment.MaxRelocatedBytes+segment.RewriteReserveBytes, int64(MaxSegmentBytes))
	}
	require.Greater(t, s.rewritten, int64(MaxSegmentBytes-2*segment.MaxRelocatedBytes))
}

func TestSegmentNumbersRunOut(t *testing.T) {
	w, err := OpenWriter("/queue", &WriterOptions{FS: vfs.NewMem()})
	require.NoError(t, err)
	w.mu.last = math.MaxUint32
	_, err = w.Append([]byte("id"), nil)
	require.ErrorIs(t, err, ErrFull)
	require.ErrorIs(t, w.Close(), ErrFull)
}
