package prefetch

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPrefetchHasNoEffect: a prefetch changes nothing and cannot fault, for any start
// and end of b.
func TestPrefetchHasNoEffect(t *testing.T) {
	b := bytes.Repeat([]byte{7}, 5*LineBytes)
	for from := range LineBytes + 1 {
		for to := from; to <= len(b); to++ {
			Bytes(b[from:to])
		}
	}
	Bytes(nil)
	Of(new(uint64))
	require.Equal(t, bytes.Repeat([]byte{7}, 5*LineBytes), b)
	require.Zero(t, testing.AllocsPerRun(100, func() { Bytes(b) }))
}
