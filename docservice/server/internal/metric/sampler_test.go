package metric

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"docstore/internal/virtualtime"
)

// TestScrapeDoesNotWaitForHangingDisk: it has the last sample, and its age.
func TestScrapeDoesNotWaitForHangingDisk(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		var s Sampler
		gauge, disk := Gauge("calls", "Calls."), make(chan struct{}, 1)
		var calls atomic.Int64
		scrape := func() (value float64, age time.Duration) {
			to := make(chan prometheus.Metric, 1)
			age = s.Collect(to, "jobs", func(to chan<- prometheus.Metric) {
				n := calls.Add(1)
				<-disk
				gauge.Send(to, float64(n))
			})
			if len(to) > 0 {
				var m dto.Metric
				require.NoError(t, (<-to).Write(&m))
				value = m.GetGauge().GetValue()
			}
			return value, age
		}
		value, age := scrape()
		require.Zero(t, value, "no sample yet")
		require.Equal(t, sampleWait, age)
		disk <- struct{}{}
		synctest.Wait()

		disk <- struct{}{}
		value, age = scrape()
		require.InDelta(t, 2, value, 0)
		require.Zero(t, age)

		for i := range 10 { // it hangs, and one call waits
			value, age = scrape()
			require.InDelta(t, 2, value, 0)
			require.Equal(t, time.Duration(i+1)*sampleWait, age)
		}
		require.Equal(t, int64(3), calls.Load())
		disk <- struct{}{}
		synctest.Wait()
		disk <- struct{}{}
		value, _ = scrape()
		require.InDelta(t, 4, value, 0)
	})
}
