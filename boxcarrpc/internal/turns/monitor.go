package turns

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Tick is the time between two looks at the leaders, while requests wait behind others
	// and a handler was long within longHandlerMemory. A handler that runs in its leader at two
	// consecutive ticks costs the leader the read turn.
	Tick = 100 * time.Microsecond
	// The same if no handler was long: a short tick costs two thread switches each time,
	// a tenth of the rate with 64 callers.
	calmTick = time.Millisecond
	// A handler that took at least this long is long.
	longHandler       = 2 * Tick
	longHandlerMemory = time.Second
	// The tick while no request waits behind another. A lone caller's call takes 28 us in
	// a process that is woken every 2 ms, and 18 us in one that is woken every 10 ms.
	pausedTick = 10 * time.Millisecond
	// A connection is dropped from the monitor after this many ticks without a handler
	// in its leader.
	idleTicks = 20
)

// A Monitor detects handlers that run long in the leader of a connection, and gives the
// turn to a follower. It is one goroutine for the server, which sleeps while no
// leader runs a handler: a timer for each batch would cost more than the batch.
type Monitor struct {
	wake     chan struct{}
	longTick atomic.Bool  // the goroutine sleeps for pausedTick
	lastLong atomic.Int64 // when a handler was last long in a leader, in nanoseconds since created
	created  time.Time
	stop     chan struct{}
	begin    sync.Once
	end      sync.Once
	running  sync.WaitGroup

	mu struct {
		sync.Mutex
		turns []*Turn
	}
}

// Init prepares the monitor, before its first use.
func (m *Monitor) Init() {
	m.wake, m.stop = make(chan struct{}, 1), make(chan struct{})
	m.created = time.Now()
	m.lastLong.Store(-int64(longHandlerMemory))
}

// Start starts the goroutine. It may be called more than once.
func (m *Monitor) Start() { m.begin.Do(func() { m.running.Go(m.run) }) }

// Close stops the goroutine and waits for it. No handler may begin after Close.
func (m *Monitor) Close() {
	m.begin.Do(func() {}) // Start does nothing from here on
	m.end.Do(func() { close(m.stop) })
	m.running.Wait()
}

// add adds the turn of a leader, which is the caller.
func (m *Monitor) add(t *Turn) {
	if !t.monitored.CompareAndSwap(false, true) {
		return
	}
	m.mu.Lock()
	m.mu.turns = append(m.mu.turns, t)
	first := len(m.mu.turns) == 1
	m.mu.Unlock()
	if first {
		m.signal()
	}
}

// shortenTick ends a long tick.
func (m *Monitor) shortenTick() {
	if m.longTick.Load() && m.longTick.CompareAndSwap(true, false) {
		m.signal()
	}
}

// Ran records that a handler took a time in a leader, until now.
func (m *Monitor) Ran(took time.Duration, now time.Time) {
	if took > longHandler {
		m.noteLong(now)
	}
}

// noteLong records that a handler was long in a leader.
func (m *Monitor) noteLong(now time.Time) { m.lastLong.Store(int64(now.Sub(m.created))) }

// tickLength returns the length of a tick while requests wait behind others.
func (m *Monitor) tickLength(now time.Time) time.Duration {
	if int64(now.Sub(m.created))-m.lastLong.Load() < int64(longHandlerMemory) {
		return Tick
	}
	return calmTick
}

func (m *Monitor) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *Monitor) run() {
	timer := time.NewTimer(Tick)
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
			m.longTick.Store(next == pausedTick)
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
func (m *Monitor) tick() (next time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.mu.turns[:0]
	for _, t := range m.mu.turns {
		if !t.check(m) {
			continue
		}
		kept = append(kept, t)
		if next == 0 {
			next = pausedTick
		}
		if t.crowded.Swap(false) {
			next = m.tickLength(time.Now())
		}
	}
	clear(m.mu.turns[len(kept):])
	m.mu.turns = kept
	return next
}
