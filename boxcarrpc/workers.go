package boxcarrpc

import "sync"

// workers are goroutines that lead connections and run slow handlers. One that
// has nothing to do waits for a while's work: the latest to stop is the first to
// go on, since its stack is warm.
type workers struct {
	mu     sync.Mutex
	idle   []chan job
	closed bool
}

// A job is what a worker does.
type job interface{ work() }

// maxIdleWorkers bounds the goroutines that wait.
const maxIdleWorkers = 256

// run has a job done by some worker.
func (w *workers) run(j job) {
	w.mu.Lock()
	if n := len(w.idle); n > 0 {
		worker := w.idle[n-1]
		w.idle = w.idle[:n-1]
		w.mu.Unlock()
		worker <- j
		return
	}
	w.mu.Unlock()
	go w.loop(j)
}

// loop does jobs until there are enough workers without it.
func (w *workers) loop(j job) {
	jobs := make(chan job, 1)
	for ; j != nil; j = <-jobs {
		j.work()
		w.mu.Lock()
		if w.closed || len(w.idle) >= maxIdleWorkers {
			w.mu.Unlock()
			return
		}
		w.idle = append(w.idle, jobs)
		w.mu.Unlock()
	}
}

func (w *workers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, worker := range w.idle {
		close(worker)
	}
	w.idle = nil
}
