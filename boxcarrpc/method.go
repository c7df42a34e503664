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
// enough to be run by the leader of a connection.
type method struct {
	name string
	slow atomic.Int32 // quick requests in a row until it counts as quick
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

// methods are those that a server was asked for.
type methods struct {
	mu     sync.Mutex
	byName map[string]*method
}

// named returns the method of this name. Of those beyond the limit each request
// has its own, which begins as slow.
func (s *methods) named(name []byte) *method {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.byName[string(name)]; m != nil {
		return m
	}
	m := &method{name: string(name)}
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
