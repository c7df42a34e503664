package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"docstore/boxcarrpc"
	"docstore/docservice"
	"docstore/internal/openloop"
)

// A target is called with an empty slice to append the answer to, and returns it
// for its next use.
type target func(ctx context.Context, dst []byte) ([]byte, error)

// A load is how a target is called.
type load struct {
	rate     float64 // calls a second; 0 for a closed loop
	duration time.Duration
	warmup   time.Duration
	timeout  time.Duration // of a call
	callers  int
	sleep    func(time.Duration) // nil for the kernel's: see openloop.Schedule
}

// A tally is what has been measured, of all callers.
type tally struct {
	mu                     sync.Mutex
	latency, service, late *hdrhistogram.Histogram
	busy                   int64 // calls that were due while all callers were busy
	notFound               int64
	failed                 int64
	errors                 map[string]int64
}

// newTally has room for times up to longest. Below 2 ms they are kept to the
// microsecond, above to three digits.
func newTally(longest time.Duration) *tally {
	histogram := func() *hdrhistogram.Histogram {
		return hdrhistogram.New(int64(time.Microsecond), int64(longest), 3)
	}
	return &tally{latency: histogram(), service: histogram(), late: histogram(), errors: map[string]int64{}}
}

// record takes a call.
func (t *tally) record(due, sent, answered time.Time, busy bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range []struct {
		h *hdrhistogram.Histogram
		d time.Duration
	}{{t.latency, answered.Sub(due)}, {t.service, answered.Sub(sent)}, {t.late, sent.Sub(due)}} {
		if x.h.RecordValue(int64(x.d)) != nil {
			_ = x.h.RecordValue(x.h.HighestTrackableValue()) // this machine slept
		}
	}
	if busy {
		t.busy++
	}
	switch {
	case errors.Is(err, docservice.ErrNotFound):
		t.notFound++
	case err != nil:
		t.failed++
		t.errors[failureOf(err)]++
	}
}

// failureOf is the kind of a failure. Messages would be too many.
func failureOf(err error) string {
	switch {
	case errors.Is(err, boxcarrpc.ErrPoolBusy):
		return "all slots of the pool were busy"
	case errors.Is(err, boxcarrpc.ErrNoServer):
		return "no server had given a slot"
	case errors.Is(err, docservice.ErrUnavailable):
		return docservice.ErrUnavailable.Error()
	}
	if code := boxcarrpc.CodeOf(err); code != boxcarrpc.CodeUnknown {
		return code.String()
	}
	return err.Error()
}

// run puts the load on a target, and returns early when ctx ends.
func (l load) run(ctx context.Context, call target) report {
	if l.warmup > 0 {
		warm := l
		warm.duration, warm.warmup = l.warmup, 0
		warm.run(ctx, call)
	}
	start := time.Now()
	end := start.Add(l.duration)
	var s *openloop.Schedule
	if l.rate > 0 {
		s = openloop.New(start, l.duration, l.rate)
		if l.sleep != nil {
			s.Sleep = l.sleep
		}
	}
	t := newTally(l.duration + 2*l.timeout + time.Second)
	var callers sync.WaitGroup
	for range l.callers {
		callers.Go(func() { l.caller(ctx, s, end, t, call) })
	}
	callers.Wait()
	select { // the last call was due a little before the end
	case <-time.After(time.Until(end)):
	case <-ctx.Done():
	}
	now := time.Now()
	var unsent int64
	if s != nil {
		unsent = s.Missed(now)
	}
	return l.report(t, now.Sub(start), unsent)
}

// caller makes calls until none are due: those of the schedule, or without one the
// next when it has the answer to the last. When the callers cannot keep up, what is
// left after the end and a timeout is not sent any more.
func (l load) caller(ctx context.Context, s *openloop.Schedule, end time.Time, t *tally, call target) {
	var dst []byte
	for {
		free := time.Now()
		due, ok := free, free.Before(end)
		if s != nil && !free.After(end.Add(l.timeout)) {
			due, ok = s.Next(ctx)
		}
		if !ok {
			return
		}
		sent := time.Now()
		within, cancel := context.WithTimeout(ctx, l.timeout)
		out, err := call(within, dst[:0])
		cancel()
		if ctx.Err() != nil {
			return // what failed because of that is no answer of the servers
		}
		t.record(due, sent, time.Now(), due.Before(free), err)
		dst = out
	}
}
