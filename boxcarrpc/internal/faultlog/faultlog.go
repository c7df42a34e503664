// Package faultlog logs the faults of peers without filling the log: one line for each host and
// kind of fault in a minute, of at most 256 of them, however often a peer connects.
package faultlog

import (
	"log/slog"
	"net"
	"sync"
	"time"
)

const (
	// One line is logged for each peer and kind of fault in this time.
	every = time.Minute
	// Pairs of a peer and a kind that are tracked. The faults of further peers share one
	// line in that time.
	maxTracked = 256
)

// A Log logs faults of peers. It may be used concurrently.
type Log struct {
	logger *slog.Logger

	mu struct {
		sync.Mutex
		seen map[key]state
	}
}

type key struct{ host, kind string }

// A state has the time of the last line and the number of faults since that were not logged.
type state struct {
	at         time.Time
	suppressed int
}

// New returns a log that writes to logger.
func New(logger *slog.Logger) *Log {
	w := &Log{logger: logger}
	w.mu.seen = make(map[key]state)
	return w
}

// Warn logs a fault of a peer, unless one of its kind was logged recently.
func (w *Log) Warn(peer net.Addr, kind, message string, attributes ...any) {
	if suppressed, ok := w.allow(time.Now(), peer, kind); ok {
		w.logger.Warn(message, append(attributes, "kind", kind, "suppressed", suppressed)...)
	}
}

// allow reports whether to log a fault, and how many of its kind were not logged since the
// last line.
func (w *Log) allow(now time.Time, address net.Addr, kind string) (suppressed int, ok bool) {
	host, _, err := net.SplitHostPort(address.String())
	if err != nil {
		host = address.String()
	}
	of := key{host, kind}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.mu.seen[of]; !known && len(w.mu.seen) >= maxTracked {
		w.forget(now)
		if len(w.mu.seen) >= maxTracked {
			of = key{}
		}
	}
	last, known := w.mu.seen[of]
	if known && now.Sub(last.at) < every {
		last.suppressed++
		w.mu.seen[of] = last
		return 0, false
	}
	w.mu.seen[of] = state{at: now}
	return last.suppressed, true
}

// forget deletes the entries whose time is over, except the shared one, whose count is
// still to be logged.
func (w *Log) forget(now time.Time) {
	for of, last := range w.mu.seen {
		if of != (key{}) && now.Sub(last.at) >= every {
			delete(w.mu.seen, of)
		}
	}
}
