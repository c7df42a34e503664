package ingest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPace(t *testing.T) {
	p := pace{interval: 10 * time.Millisecond}
	start := time.Unix(1, 0)
	for i := range 10 {
		require.Equal(t, time.Duration(i)*p.interval, p.reserve(start))
	}
	require.Zero(t, p.reserve(start.Add(time.Second)), "unused time is lost")
	require.Equal(t, p.interval, p.reserve(start.Add(time.Second)))
}
