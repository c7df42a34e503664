package boxcarrpc

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// A deadline without a monotonic clock reading, as of a parsed time, is compared with the
// present wall clock, not with that of the pool's start.
func TestADeadlineOfTheWallClockAfterAClockStep(t *testing.T) {
	start := time.Now()
	(*struct {
		wall      uint64
		monotonic int64
	})(unsafe.Pointer(&start)).monotonic -= int64(time.Hour) // the wall clock was set back by
	left := func(deadline time.Time) time.Duration { return monotonic(deadline).Sub(start) - time.Since(start) }
	require.InDelta(t, time.Minute, left(time.Now().Add(time.Minute)), float64(10*time.Second))
	require.InDelta(t, time.Minute, left(time.Now().Add(time.Minute).Round(0)), float64(10*time.Second))
}
