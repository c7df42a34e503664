package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"docstore/boxcarrpc"
	"docstore/docservice"
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
}

// A schedule is the moments when calls are due. All callers take from one, so that
// whoever is free makes the call that is due next.
type schedule struct {
	mu   sync.Mutex
	rng  *rand.Rand
	next time.Time
	end  time.Time
	mean float64 // nanoseconds between two; 0 if the next is always due now
}

// newSchedule has the same gaps each time.
func newSchedule(start time.Time, duration time.Duration, rate float64) *schedule {
	s := &schedule{rng: rand.New(rand.NewPCG(1, 2)), next: start, end: start.Add(duration)}
	if rate > 0 {
		s.mean = float64(time.Second) / rate
		s.advance()
	}
	return s
}

// advance draws the gap to the next call: exponential, as between the calls of
// many who do not know of each other.
func (s *schedule) advance() {
	s.next = s.next.Add(time.Duration(s.rng.ExpFloat64() * s.mean))
}

// take returns when the next call is due; false if there are no more.
func (s *schedule) take(now time.Time) (due time.Time, ok bool) {
	if s.mean == 0 {
		return now, now.Before(s.end)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	due = s.next
	if !due.Before(s.end) {
		return due, false
	}
	s.advance()
	return due, true
}

// rest counts the calls that were due by now and that nobody took.
func (s *schedule) rest(now time.Time) (n int64) {
	if s.mean == 0 {
		return 0
	}
	for due, ok := s.take(now); ok && !due.After(now); due, ok = s.take(now) {
		n++
	}
	return n
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
	s := newSchedule(start, l.duration, l.rate)
	t := newTally(l.duration + 2*l.timeout + time.Second)
	var callers sync.WaitGroup
	for range l.callers {
		callers.Go(func() { l.caller(ctx, s, t, call) })
	}
	callers.Wait()
	select { // the last call was due a little before the end
	case <-time.After(time.Until(s.end)):
	case <-ctx.Done():
	}
	now := time.Now()
	return l.report(t, now.Sub(start), s.rest(now))
}

// caller makes calls until none are due. When the callers cannot keep up, what is
// left after the end and a timeout is not sent any more.
func (l load) caller(ctx context.Context, s *schedule, t *tally, call target) {
	var dst []byte
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		free := time.Now()
		if free.After(s.end.Add(l.timeout)) {
			return
		}
		due, ok := s.take(free)
		if !ok {
			return
		}
		busy := due.Before(free)
		if !busy {
			timer.Reset(due.Sub(free))
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
		}
		sent := time.Now()
		within, cancel := context.WithTimeout(ctx, l.timeout)
		out, err := call(within, dst[:0])
		cancel()
		if ctx.Err() != nil {
			return // what failed because of that is no answer of the servers
		}
		t.record(due, sent, time.Now(), busy, err)
		dst = out
	}
}
