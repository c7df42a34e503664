package main

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"docstore/bench/internal/process"
	"docstore/boxcarrpc"
)

// A window has the results of the requests that began within a time.
type window struct {
	lasted  time.Duration
	cpu     time.Duration // of this process, both sides
	dialled int64

	mu       sync.Mutex
	took     []time.Duration
	failures map[string]int
	slots    int // fewest slots of a frontend
}

// add records a request.
func (w *window) add(took time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took = append(w.took, took)
	if err != nil {
		w.failures[kindOf(err)]++
	}
}

func (w *window) held(slots int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots = min(w.slots, slots)
}

// results returns the figures recorded so far.
func (w *window) results() (took []time.Duration, failures map[string]int, slots int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.took), maps.Clone(w.failures), w.slots
}

// kindOf names an error.
func kindOf(err error) string {
	var e *boxcarrpc.Error
	switch {
	case errors.Is(err, boxcarrpc.ErrPoolBusy):
		return "no free slot"
	case errors.Is(err, boxcarrpc.ErrNoServer):
		return "no server"
	case errors.Is(err, context.DeadlineExceeded):
		return "too late"
	case errors.As(err, &e):
		return e.Code.String()
	}
	return err.Error()
}

// A meter records requests in the current window.
type meter struct {
	current atomic.Pointer[window]
	dialled atomic.Int64
	began   time.Time
}

// begin opens a window.
func (m *meter) begin() {
	m.began = time.Now()
	m.current.Store(&window{failures: map[string]int{}, slots: math.MaxInt, cpu: -process.OwnCPU(), dialled: -m.dialled.Load()})
}

// end returns the window. Some of its requests may still be in flight.
func (m *meter) end() *window {
	w := m.current.Load()
	w.lasted = time.Since(m.began)
	w.cpu += process.OwnCPU()
	w.dialled += m.dialled.Load()
	return w
}
