package boxcarrpc

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Many who meet the lock held, some for longer than they look again, get it one by one.
func TestMutexExcludes(t *testing.T) {
	const goroutines, times = 16, 2000
	var (
		m  mutex
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
