package boxcarrpc

import (
	"net"
	"sync"
	"time"
)

const (
	// One line is logged for each peer and kind of fault in this time: a client that
	// reconnects in a loop must not fill the log.
	warnEvery = time.Minute
	// Pairs of a peer and a kind that are tracked. The faults of further peers share one
	// line in that time.
	maxWarned = 256
)

// A warnLimit limits the log lines about faults of peers. Counters include all faults.
type warnLimit struct {
	mu struct {
		sync.Mutex
		seen map[warnKey]warnState
	}
}

type warnKey struct{ host, kind string }

// warnState has the time of the last line and the number of faults since that were not logged.
type warnState struct {
	at         time.Time
	suppressed int
}

// allow reports whether to log a fault, and how many of its kind were not logged since the
// last line.
func (w *warnLimit) allow(now time.Time, address net.Addr, kind string) (suppressed int, ok bool) {
	host, _, err := net.SplitHostPort(address.String())
	if err != nil {
		host = address.String()
	}
	key := warnKey{host, kind}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.seen == nil {
		w.mu.seen = make(map[warnKey]warnState)
	}
	if _, known := w.mu.seen[key]; !known && len(w.mu.seen) >= maxWarned {
		w.forget(now)
		if len(w.mu.seen) >= maxWarned {
			key = warnKey{}
		}
	}
	last, known := w.mu.seen[key]
	if known && now.Sub(last.at) < warnEvery {
		last.suppressed++
		w.mu.seen[key] = last
		return 0, false
	}
	w.mu.seen[key] = warnState{at: now}
	return last.suppressed, true
}

// forget deletes the entries whose time is over, except the shared one, whose count is
// still to be logged.
func (w *warnLimit) forget(now time.Time) {
	for key, last := range w.mu.seen {
		if key != (warnKey{}) && now.Sub(last.at) >= warnEvery {
			delete(w.mu.seen, key)
		}
	}
}

// warn logs a fault of a peer, unless one of its kind was logged recently.
func (s *Server) warn(peer net.Addr, kind, message string, attributes ...any) {
	if suppressed, ok := s.warnings.allow(time.Now(), peer, kind); ok {
		s.options.Logger.Warn(message, append(attributes, "kind", kind, "suppressed", suppressed)...)
	}
}
