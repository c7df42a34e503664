package boxcar

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

// A target makes one call. It appends the response to dst, which is empty, and returns dst
// for reuse.
type target func(ctx context.Context, dst []byte) ([]byte, error)

// A load defines how a target is called.
type load struct {
	rate     float64 // calls per second; 0: closed loop
	duration time.Duration
	warmup   time.Duration
	timeout  time.Duration // of a call
	callers  int
	sleep    func(time.Duration) // nil: that of openloop.Schedule
}

// A tally is the measurement of all callers.
type tally struct {
	mu                     sync.Mutex
	latency, service, late *hdrhistogram.Histogram
	busy                   int64 // calls that were due while all callers were busy
	notFound               int64
	failed                 int64
	errors                 map[string]int64
}

// newTally returns a tally for times up to longest. Times below 2 ms have a resolution of a
// microsecond, longer ones three digits.
func newTally(longest time.Duration) *tally {
	histogram := func() *hdrhistogram.Histogram {
		return hdrhistogram.New(int64(time.Microsecond), int64(longest), 3)
	}
	return &tally{latency: histogram(), service: histogram(), late: histogram(), errors: map[string]int64{}}
}

// record records a call.
func (t *tally) record(due, sent, answered time.Time, busy bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range []struct {
		h *hdrhistogram.Histogram
		d time.Duration
	}{{t.latency, answered.Sub(due)}, {t.service, answered.Sub(sent)}, {t.late, sent.Sub(due)}} {
		if x.h.RecordValue(int64(x.d)) != nil {
			_ = x.h.RecordValue(x.h.HighestTrackableValue()) // beyond the range: the machine was suspended
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

// failureOf returns the kind of an error. Messages are too diverse for a summary.
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

// run applies the load to a target until its end or that of ctx.
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
	select { // the last call is due slightly before the end
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

// caller makes the calls of the schedule, or without one each call after the response to
// the last. If the callers cannot keep up, calls that are due later than a timeout after
// the end are not sent.
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
			return // errors caused by that are not those of servers
		}
		t.record(due, sent, time.Now(), due.Before(free), err)
		dst = out
	}
}
