package rare

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Before a simulation begins, and in other builds, limits are the usual ones.
func TestUsualLimits(t *testing.T) {
	require.EqualValues(t, 1000, Limit("memtable", 1000, 10))
	require.Equal(t, time.Second, Pause("sweep", time.Second, time.Minute))
	require.Zero(t, testing.AllocsPerRun(100, func() { Limit("memtable", 1000, 10) }))
}
