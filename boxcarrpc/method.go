package boxcarrpc

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// A handler that takes longer than this is not run by a leader.
	quickHandler = 50 * time.Microsecond
	// A run that is not quick counts for this many requests, each of which makes up for a part
	// of it: two such runs within so many requests make the method slow, and it stays slow until
	// so many in a row were quick. One may be that of a thread which the kernel preempted.
	slowMemory = 16
	// The score of a method from which it is slow, and its limit.
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

// record records the duration of a handler. It writes nothing for a method of which the last
// slowMemory requests were quick. Concurrent runs may lose the record of one.
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
