package spin

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Goroutines that spin and goroutines that are parked all get the lock, one at a time.
func TestMutexExcludes(t *testing.T) {
	const goroutines, times = 16, 2000
	var (
		m  Mutex
		wg sync.WaitGroup
		n  int
	)
	for i := range goroutines {
		wg.Go(func() {
			for k := range times {
				m.Lock()
				n++
				if i == 0 && k%500 == 0 {
					time.Sleep(time.Millisecond) // the others are parked
				}
				m.Unlock()
			}
		})
	}
	wg.Wait()
	require.Equal(t, goroutines*times, n)
}
