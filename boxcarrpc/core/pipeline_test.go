package core

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPipelineParts(t *testing.T) {
	for _, test := range []struct{ lanes, part int }{
		{1, 4}, {8, 4}, {9, 4}, {16, 8}, {45, 22}, {64, 32}, {1000, 500},
	} {
		var p Pipeline
		last := make([]uint32, test.lanes)
		for i := range pipelineRequests {
			require.False(t, p.Response(), "in the first period, %d lanes", test.lanes)
			p.Request(&last[i%test.lanes])
		}
		p.Written()
		for range 3 {
			for n := 1; n < test.part; n++ {
				require.False(t, p.Response(), "response %d with %d lanes", n, test.lanes)
			}
			require.True(t, p.Response(), "%d lanes", test.lanes)
			p.Written()
		}
	}
}

// TestPipelineFollowsLanes changes the number of lanes in use.
func TestPipelineFollowsLanes(t *testing.T) {
	var p Pipeline
	last := make([]uint32, 128)
	for _, lanes := range []int{128, 8, 64} {
		for i := range 2 * pipelineRequests {
			p.Request(&last[i%lanes])
		}
		require.EqualValues(t, lanes, p.before)
	}
}

// TestPipelinePeriodsWrapAround has a lane that was last used when the number of the
// period was the same.
func TestPipelinePeriodsWrapAround(t *testing.T) {
	p := Pipeline{period: math.MaxUint32}
	var last uint32
	for range 3 * pipelineRequests {
		p.Request(&last)
	}
	require.EqualValues(t, 1, p.before)
}
