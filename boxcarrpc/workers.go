package boxcarrpc

import (
	"sync"
)

// workers are the goroutines that lead connections and run slow handlers. An idle worker
// waits for more work; the last one to become idle is used first, because its stack is
// warm.
type workers struct {
	mu     sync.Mutex
	idle   []chan job
	closed bool
}

// A job is work for a worker.
type job interface{ work() }

// maxIdleWorkers limits the goroutines that wait for work.
const maxIdleWorkers = 256

// run runs a job in a worker.
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

// loop runs jobs until enough other workers are idle.
func (w *workers) loop(j job) {
	var jobs chan job // a worker that leads an idle connection needs none
	for ; j != nil; j = <-jobs {
		j.work()
		if jobs == nil {
			jobs = make(chan job, 1)
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

func (w *workers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, worker := range w.idle {
		close(worker)
	}
	w.idle = nil
}

const (
	newBuffer     = 256      // bytes
	maxKeptBuffer = 64 << 10 // the largest buffer that is reused
)

// Small requests have their own pool, so that they do not hold the memory of large ones.
var smallBuffers, largeBuffers = sync.Pool{New: newRequestBuffer}, sync.Pool{New: newRequestBuffer}

func newRequestBuffer() any {
	b := make([]byte, 0, newBuffer)
	return &b
}

// requestBuffer returns a buffer for a request of that size.
func requestBuffer(size int) *[]byte {
	if size <= smallRequest {
		return smallBuffers.Get().(*[]byte)
	}
	return largeBuffers.Get().(*[]byte)
}

func keepRequestBuffer(b *[]byte) {
	switch {
	case cap(*b) > maxKeptBuffer:
		return
	case cap(*b) <= smallRequest:
		*b = (*b)[:0]
		smallBuffers.Put(b)
	default:
		*b = (*b)[:0]
		largeBuffers.Put(b)
	}
}
