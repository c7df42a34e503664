package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The real rig runs. How close it comes to the simulation depends on the machine, so
// the test does not check it.
func TestTruthRunsRealPools(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(&out, io.Discard, strings.Fields(
		"-truth -load 0.2 -repeats 1 -duration 300ms -warmup 100ms")))
	require.Equal(t, 3, strings.Count(out.String(), "\n"), out.String())
}

func TestShares(t *testing.T) {
	served := make([]float64, 20)
	for i := range served {
		served[i] = 10
	}
	served[3], served[4], served[5] = 5, 20, 15
	got := sharesOf(served, func(i int) bool { return i == 3 })
	require.InDelta(t, 5.0/(205.0/19), got.slow, 1e-9)
	require.InDelta(t, 35.0/210, got.busiest, 1e-9)
	require.InDelta(t, 95.0/210, got.idleHalf, 1e-9)
}
