package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOthersShare(t *testing.T) {
	require.Zero(t, othersShare(time.Second, time.Second, time.Second, 2))
	require.Equal(t, 0.25, othersShare(time.Second, time.Second/2, time.Second, 2))
	require.Equal(t, 1.0, othersShare(5*time.Second, 0, time.Second, 2), "steps of the clocks")
	require.Zero(t, othersShare(0, time.Second, time.Second, 2))
	require.Zero(t, othersShare(time.Second, 0, 0, 2))
	require.Empty(t, BusyWarnings(maxOthers))
	require.Equal(t, []string{"others took 43 % of the processors"}, BusyWarnings(0.43))
}

func TestTheMachineIsKnown(t *testing.T) {
	require.Contains(t, Name(), "go1.")
	require.NotEmpty(t, Commit())
	require.LessOrEqual(t, NewWatch(0).Others(0), 1.0)
}
