package boxcarrpc

import (
	"sync"
	"time"
)

const (
	// A handler that is in its leader at two ticks loses it the turn. An idle
	// runtime rounds the tick up to a millisecond.
	watchTick = 100 * time.Microsecond
	// A connection whose leader was in no handler at so many ticks is no longer
	// looked at.
	watchIdle = 100
)

// The watch of a server looks at leaders that run handlers. It is a goroutine
// that sleeps while there are none: a timer for each batch would cost more than
// the batch.
type watch struct {
	wake    chan struct{}
	stop    chan struct{}
	begin   sync.Once
	end     sync.Once
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		conns []*serverConn
	}
}

func (w *watch) init() { w.wake, w.stop = make(chan struct{}, 1), make(chan struct{}) }

// start begins the watch, once.
func (w *watch) start() { w.begin.Do(func() { w.running.Go(w.run) }) }

// close ends the watch. Nothing is added any more.
func (w *watch) close() {
	w.begin.Do(func() {}) // it shall not begin any more
	w.end.Do(func() { close(w.stop) })
	w.running.Wait()
}

// add has the watch look at a connection, which the caller leads.
func (w *watch) add(c *serverConn) {
	if !c.turn.watched.CompareAndSwap(false, true) {
		return
	}
	w.mu.Lock()
	w.mu.conns = append(w.mu.conns, c)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watch) run() {
	timer := time.NewTimer(watchTick)
	defer timer.Stop()
	for {
		select {
		case <-w.wake:
		case <-w.stop:
			return
		}
		for w.tick() {
			timer.Reset(watchTick)
			select {
			case <-timer.C:
			case <-w.stop:
				return
			}
		}
	}
}

// tick looks at every leader and reports whether there are any to look at.
func (w *watch) tick() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := w.mu.conns[:0]
	for _, c := range w.mu.conns {
		if c.turn.look(c) {
			kept = append(kept, c)
		}
	}
	clear(w.mu.conns[len(kept):])
	w.mu.conns = kept
	return len(kept) > 0
}

// look gives the turn to a follower if the leader has been in the same handler
// since the last look. It reports whether to look again.
func (t *serverTurn) look(c *serverConn) bool {
	number := t.running.Load()
	if number != 0 {
		if number == t.seen && t.running.CompareAndSwap(number, 0) {
			c.server.workers.run(c)
		}
		t.seen, t.idle = number, 0
		return true
	}
	t.idle++
	if t.idle < watchIdle {
		return true
	}
	// A run that begins now either sees that it is not watched, or is seen here.
	t.idle = 0
	t.watched.Store(false)
	return t.running.Load() != 0 && t.watched.CompareAndSwap(false, true)
}
