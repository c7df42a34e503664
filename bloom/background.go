package bloom

import (
	"sync"
	"time"
)

const (
	tickInterval  = time.Second
	retryInterval = time.Minute // after a pass that failed
)

// Start runs the Manager in the background: a Tick at once and then every second, or
// without pause while more pages wait to be loaded. report receives the errors. stop
// ends the goroutine and waits for it; it is idempotent.
func (m *Manager) Start(report func(error)) (stop func()) {
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			more, err := m.Tick(time.Now())
			wait := tickInterval
			switch {
			case err != nil:
				report(err)
				wait = retryInterval
			case more:
				wait = 0
			}
			select {
			case <-quit:
				return
			case <-time.After(wait):
			}
		}
	})
	return sync.OnceFunc(func() {
		close(quit)
		done.Wait()
	})
}
