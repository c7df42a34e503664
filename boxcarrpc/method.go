package boxcarrpc

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// A handler that takes longer than this is not run by a leader.
	quickHandler = 50 * time.Microsecond
	// Two slow runs within this many requests make a method slow, and it stays slow until so many
	// requests in a row were quick. A single slow run is ignored: the kernel may have preempted its
	// thread.
	slowMemory = 16
	// A slow run adds slowMemory to the score of its method, a quick one subtracts 1. The method is
	// slow from slowScore on.
	slowScore = slowMemory + 1
	maxScore  = 2 * slowMemory
	// The server tracks this many methods. All others count as slow.
	maxMethods = 1 << 10
)

// A method holds what a server has measured of one method: whether its handler is quick
// enough to run in the leader of a connection, and the size of its responses.
type method struct {
	name     string
	slowness atomic.Int32 // a score, at most maxScore
	buffers  sync.Pool    // of *[]byte, for its responses
	unfit    atomic.Int64 // size of the last response that did not fit; 0 if one was much smaller since
}

func (m *method) quick() bool { return m.slowness.Load() < slowScore }

// record records the duration of a handler. It writes nothing if the score is 0 and the run was
// quick. Of concurrent runs, some may not be counted.
func (m *method) record(d time.Duration) {
	switch score := m.slowness.Load(); {
	case d > quickHandler:
		m.slowness.Store(min(score+slowMemory, maxScore))
	case score > 0:
		m.slowness.Store(score - 1)
	}
}

// avoid makes the method slow.
func (m *method) avoid() { m.slowness.Store(maxScore) }

// buffer returns a buffer for a response. The buffers of a method adapt to the size of its
// responses.
func (m *method) buffer() *[]byte {
	if b, ok := m.buffers.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

// keep returns a buffer to the pool after its response has been sent. The response may be
// the handler's own memory, which is not kept. If responses repeatedly do not fit, a larger
// buffer is allocated for the next one.
func (m *method) keep(b *[]byte, response []byte) {
	const small = 4 << 10 // kept even for much smaller responses
	switch {
	case cap(*b) > max(small, 4*len(response)):
		m.unfit.Store(0) // small responses occur between the large ones
		return
	case len(response) > cap(*b) && m.unfit.Swap(int64(len(response))) >= int64(len(response)/4):
		*b = make([]byte, 0, len(response)+len(response)/8)
	}
	m.buffers.Put(b)
}

// methods are the methods that a server was called with.
type methods struct {
	mu     sync.Mutex
	byName map[string]*method
}

// named returns the method of this name. Above the limit it returns a new one, which is
// slow, for each request.
func (s *methods) named(name []byte) *method {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.byName[string(name)]; m != nil {
		return m
	}
	m := &method{name: string(name)}
	if len(s.byName) >= maxMethods {
		m.avoid()
		return m
	}
	if s.byName == nil {
		s.byName = make(map[string]*method)
	}
	s.byName[m.name] = m
	return m
}
