package memcached

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The first pause grows for a server that fails repeatedly, and is reset for one that was
// up for long.
func TestPauseAfter(t *testing.T) {
	s := server{pause: time.Second}
	pause := time.Duration(0)
	for _, test := range []struct{ inUse, want time.Duration }{
		{time.Hour, time.Second}, // the first time
		{time.Second, 2 * time.Second},
		{0, 4 * time.Second},
		{MaxPause, 8 * time.Second},
		{0, 16 * time.Second},
		{0, MaxPause},
		{0, MaxPause},
		{MaxPause + 1, time.Second},
		{0, 2 * time.Second},
	} {
		pause = s.pauseAfter(pause, test.inUse)
		require.Equal(t, test.want, pause)
	}
	long := server{pause: time.Hour}
	require.Equal(t, time.Hour, long.pauseAfter(time.Hour, 0))
}
