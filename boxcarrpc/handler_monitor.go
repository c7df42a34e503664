package boxcarrpc

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// A handler that runs in its leader at two consecutive ticks costs the leader the
	// read turn. This is the tick while requests wait behind others, if a handler was
	// long within longHandlerMemory.
	monitorTick = 100 * time.Microsecond
	// The same if no handler was long: a short tick costs two thread switches each time,
	// a tenth of the rate with 64 callers.
	monitorCalmTick = time.Millisecond
	// A handler that took at least this long is long.
	longHandler       = 2 * monitorTick
	longHandlerMemory = time.Second
	// The tick while no request waits behind another. A lone caller's call takes 28 us in
	// a process that is woken every 2 ms, and 18 us in one that is woken every 10 ms.
	monitorLongTick = 10 * time.Millisecond
	// A connection is dropped from the monitor after this many ticks without a handler
	// in its leader.
	monitorIdleTicks = 20
)

// A handlerMonitor detects handlers that run long in the leader of a connection, and gives
// the read turn to a follower. It is one goroutine for the server, which sleeps while no
// leader runs a handler: a timer for each batch would cost more than the batch.
type handlerMonitor struct {
	wake     chan struct{}
	longTick atomic.Bool  // the goroutine sleeps for monitorLongTick
	lastLong atomic.Int64 // when a handler was last long in a leader, in nanoseconds since created
	created  time.Time
	stop     chan struct{}
	begin    sync.Once
	end      sync.Once
	running  sync.WaitGroup

	mu struct {
		sync.Mutex
		conns []*serverConn
	}
}

func (m *handlerMonitor) init() {
	m.wake, m.stop = make(chan struct{}, 1), make(chan struct{})
	m.created = time.Now()
	m.lastLong.Store(-int64(longHandlerMemory))
}

// start starts the goroutine. It may be called more than once.
func (m *handlerMonitor) start() { m.begin.Do(func() { m.running.Go(m.run) }) }

// close stops the goroutine and waits for it. No connection may be added after close.
func (m *handlerMonitor) close() {
	m.begin.Do(func() {}) // start does nothing from here on
	m.end.Do(func() { close(m.stop) })
	m.running.Wait()
}

// add adds a connection whose leader is the caller.
func (m *handlerMonitor) add(c *serverConn) {
	if !c.turn.monitored.CompareAndSwap(false, true) {
		return
	}
	m.mu.Lock()
	m.mu.conns = append(m.mu.conns, c)
	first := len(m.mu.conns) == 1
	m.mu.Unlock()
	if first {
		m.signal()
	}
}

// shortenTick ends a long tick.
func (m *handlerMonitor) shortenTick() {
	if m.longTick.Load() && m.longTick.CompareAndSwap(true, false) {
		m.signal()
	}
}

// noteLong records that a handler was long in a leader.
func (m *handlerMonitor) noteLong(now time.Time) { m.lastLong.Store(int64(now.Sub(m.created))) }

// tickLength returns the length of a tick while requests wait behind others.
func (m *handlerMonitor) tickLength(now time.Time) time.Duration {
	if int64(now.Sub(m.created))-m.lastLong.Load() < int64(longHandlerMemory) {
		return monitorTick
	}
	return monitorCalmTick
}

func (m *handlerMonitor) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *handlerMonitor) run() {
	timer := time.NewTimer(monitorTick)
	defer timer.Stop()
	for {
		select {
		case <-m.wake:
		case <-m.stop:
			return
		}
		for {
			next := m.tick()
			if next == 0 {
				break
			}
			timer.Reset(next)
			m.longTick.Store(next == monitorLongTick)
			select {
			case <-timer.C:
			case <-m.wake:
			case <-m.stop:
				return
			}
		}
	}
}

// tick checks every leader and returns the time to the next tick, 0 if no connection is
// left to monitor.
func (m *handlerMonitor) tick() (next time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.mu.conns[:0]
	for _, c := range m.mu.conns {
		if !c.turn.check(c) {
			continue
		}
		kept = append(kept, c)
		if next == 0 {
			next = monitorLongTick
		}
		if c.turn.crowded.Swap(false) {
			next = m.tickLength(time.Now())
		}
	}
	clear(m.mu.conns[len(kept):])
	m.mu.conns = kept
	return next
}

// check gives the turn to a follower if the leader has been in the same handler since the
// last tick. It reports whether the connection stays monitored.
func (t *serverTurn) check(c *serverConn) bool {
	number := t.running.Load()
	if number != 0 {
		if number == t.seen && t.running.CompareAndSwap(number, 0) {
			c.server.monitor.noteLong(time.Now())
			c.server.workers.run(c)
		}
		t.seen, t.idle = number, 0
		return true
	}
	t.idle++
	if t.idle < monitorIdleTicks {
		return true
	}
	// A handler that starts now either sees that the connection is not monitored, or is
	// seen by the load below.
	t.idle = 0
	t.monitored.Store(false)
	return t.running.Load() != 0 && t.monitored.CompareAndSwap(false, true)
}
