package budget

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
)

var _ Limiter = (*rate.Limiter)(nil)

func TestALimiterIsSafeForConcurrentUse(t *testing.T) {
	const burst = 1000
	l, err := NewLimiter(1, burst)
	require.NoError(t, err)
	now := time.Now()
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range burst {
				if l.AllowN(now, 1) {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, int64(burst), allowed.Load())
}

func TestAdmissionHasDefaults(t *testing.T) {
	for perSecond, burst := range map[float64]int{1: 1, 1000: 100, 1e9: 1 << 20} {
		a, err := Admission{ClientRate: perSecond}.Complete()
		require.NoError(t, err)
		require.Equal(t, burst, a.ClientBurst)
		require.Equal(t, DefaultMaxInFlight, a.MaxInFlight)
	}
	_, err := Admission{MaxInFlight: -1, ClientRate: -1}.Complete()
	require.ErrorContains(t, err, "MaxInFlight is -1")
	require.ErrorContains(t, err, "ClientRate")
	_, err = NewLimiter(0, 1)
	require.Error(t, err)
}

// Each client has its own rate, and is tracked once.
func TestAGateTracksClients(t *testing.T) {
	limits, err := Admission{ClientRate: 50, ClientBurst: 5}.Complete()
	require.NoError(t, err)
	g, now := NewGate(limits), time.Now()
	for client := range 2 {
		for range 5 {
			require.Equal(t, Admitted, g.Enter(now, clientNumber(client), false))
		}
		require.Equal(t, ClientRateExceeded, g.Enter(now, clientNumber(client), false))
	}
	require.Equal(t, 2, g.clients.buckets.Len())
	require.Equal(t, int64(10), g.InFlight())
}
