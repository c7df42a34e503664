package boxcarrpc

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// A handler that takes longer than this is not for a leader.
	quickHandler = 50 * time.Microsecond
	// A method stays slow until so many of its requests in a row were quick.
	slowMemory = 16
	// Of so many methods a server learns; what it is asked for beyond them counts
	// as slow.
	maxMethods = 1 << 10
)

// A method is what a server has learnt of one: whether its handler is quick
// enough to be run by the leader of a connection, and how large its responses are.
type method struct {
	name     string
	prefetch func(requests [][]byte) // nil for none
	slow     atomic.Int32            // quick requests in a row until it counts as quick
	buffers  sync.Pool               // of *[]byte, for its responses
	unfit    atomic.Int64            // bytes of the last response that did not fit; 0 if one was too small since
}

func (m *method) quick() bool { return m.slow.Load() <= 0 }

// took learns from a request. A method that is quick pays nothing for it.
func (m *method) took(d time.Duration) {
	switch {
	case d > quickHandler:
		m.slow.Store(slowMemory)
	case !m.quick():
		m.slow.Add(-1)
	}
}

// buffer is for a response. Those of a method come to have the size that its
// responses need.
func (m *method) buffer() *[]byte {
	if b, ok := m.buffers.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

// keep takes a buffer back after its response has been sent. The response may be
// the handler's own memory, which is not kept: when responses do not fit again and
// again, a larger buffer is made for the next.
func (m *method) keep(b *[]byte, response []byte) {
	const small = 4 << 10 // is kept although the response was smaller by far
	switch {
	case cap(*b) > max(small, 4*len(response)):
		m.unfit.Store(0) // there are small ones between the large ones
		return
	case len(response) > cap(*b) && m.unfit.Swap(int64(len(response))) >= int64(len(response)/4):
		*b = make([]byte, 0, len(response)+len(response)/8)
	}
	m.buffers.Put(b)
}

// methods are those that a server was asked for.
type methods struct {
	mu       sync.Mutex
	byName   map[string]*method
	prefetch map[string]func(requests [][]byte)
}

// methodNamed is methods.named, for the connection's leader.
func (c *serverConn) methodNamed(name []byte) *method {
	if c.method == nil || string(name) != c.method.name {
		c.method = c.server.methods.named(name)
	}
	return c.method
}

// named returns the method of this name. Of those beyond the limit each request
// has its own, which begins as slow.
func (s *methods) named(name []byte) *method {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.byName[string(name)]; m != nil {
		return m
	}
	m := &method{name: string(name), prefetch: s.prefetch[string(name)]}
	if len(s.byName) >= maxMethods {
		m.slow.Store(slowMemory)
		return m
	}
	if s.byName == nil {
		s.byName = make(map[string]*method)
	}
	s.byName[m.name] = m
	return m
}
