package turns

import "sync"

// Workers are the goroutines that lead connections and run slow handlers. An idle worker
// waits for more work; the last one to become idle is used first, because its stack is
// warm.
type Workers struct {
	mu     sync.Mutex
	idle   []chan Job
	closed bool
}

// A Job is work for a worker.
type Job interface{ Work() }

// maxIdleWorkers limits the goroutines that wait for work.
const maxIdleWorkers = 256

// Run runs a job in a worker.
func (w *Workers) Run(j Job) {
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

// loop runs jobs until enough other workers are idle.
func (w *Workers) loop(j Job) {
	var jobs chan Job // a worker that leads an idle connection needs none
	for ; j != nil; j = <-jobs {
		j.Work()
		if jobs == nil {
			jobs = make(chan Job, 1)
		}
		w.mu.Lock()
		if w.closed || len(w.idle) >= maxIdleWorkers {
			w.mu.Unlock()
			return
		}
		w.idle = append(w.idle, jobs)
		w.mu.Unlock()
	}
}

// Close ends the idle workers, and the others after their jobs.
func (w *Workers) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, worker := range w.idle {
		close(worker)
	}
	w.idle = nil
}
