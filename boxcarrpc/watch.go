package boxcarrpc

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// A handler that is in its leader at two ticks loses it the turn. The ticks are
	// short while requests wait behind others, if one has lately been long.
	watchTick = 100 * time.Microsecond
	// Where none has, each tick would be two changes of thread for nothing, with 64
	// callers a tenth of their rate.
	watchCalmTick = time.Millisecond
	// One that took this long is long: lately is watchMemory.
	longHandler = 2 * watchTick
	watchMemory = time.Second
	// Else they are long: a process that is woken every 2 ms takes 28 us for the
	// call of a lone caller, woken every 10 ms it takes 18 us.
	watchLongTick = 10 * time.Millisecond
	// A connection whose leader was in no handler at so many ticks is no longer
	// looked at.
	watchIdle = 20
)

// The watch of a server looks at leaders that run handlers. It is a goroutine
// that sleeps while there are none: a timer for each batch would cost more than
// the batch.
type watch struct {
	wake    chan struct{}
	long    atomic.Bool  // it sleeps for a long tick
	alarmed atomic.Int64 // when a handler was last long in a leader, in nanoseconds since begun
	begun   time.Time
	stop    chan struct{}
	begin   sync.Once
	end     sync.Once
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		conns []*serverConn
	}
}

func (w *watch) init() {
	w.wake, w.stop = make(chan struct{}, 1), make(chan struct{})
	w.begun = time.Now()
	w.alarmed.Store(-int64(watchMemory))
}

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
	first := len(w.mu.conns) == 1
	w.mu.Unlock()
	if first {
		w.ring()
	}
}

// hurry ends a long tick.
func (w *watch) hurry() {
	if w.long.Load() && w.long.CompareAndSwap(true, false) {
		w.ring()
	}
}

// alarm has requests that wait behind others watched closely.
func (w *watch) alarm(now time.Time) { w.alarmed.Store(int64(now.Sub(w.begun))) }

// pace is the length of a tick while requests wait behind others.
func (w *watch) pace(now time.Time) time.Duration {
	if int64(now.Sub(w.begun))-w.alarmed.Load() < int64(watchMemory) {
		return watchTick
	}
	return watchCalmTick
}

func (w *watch) ring() {
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
		for {
			next := w.tick()
			if next == 0 {
				break
			}
			timer.Reset(next)
			w.long.Store(next == watchLongTick)
			select {
			case <-timer.C:
			case <-w.wake:
			case <-w.stop:
				return
			}
		}
	}
}

// tick looks at every leader and returns when to look again; 0 if there are none
// to look at.
func (w *watch) tick() (next time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := w.mu.conns[:0]
	for _, c := range w.mu.conns {
		if !c.turn.look(c) {
			continue
		}
		kept = append(kept, c)
		if next == 0 {
			next = watchLongTick
		}
		if c.turn.crowded.Swap(false) {
			next = w.pace(time.Now())
		}
	}
	clear(w.mu.conns[len(kept):])
	w.mu.conns = kept
	return next
}

// look gives the turn to a follower if the leader has been in the same handler
// since the last look. It reports whether to look again.
func (t *serverTurn) look(c *serverConn) bool {
	number := t.running.Load()
	if number != 0 {
		if number == t.seen && t.running.CompareAndSwap(number, 0) {
			c.server.watch.alarm(time.Now())
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
