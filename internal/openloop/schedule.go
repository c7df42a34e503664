// Package openloop schedules the calls of an open-loop load. Calls are due at random
// times (a Poisson process), independent of the progress of earlier calls.
//
//	schedule := openloop.New(start, duration, rate)
//	for due, ok := schedule.Next(ctx); ok; due, ok = schedule.Next(ctx) {
//		call()
//		latency := time.Since(due) // includes the delay of a late call
//	}
//
// Several callers share a schedule. One of them waits for the next due time and makes the
// call while another waits, so that only one thread needs a precise sleep.
package openloop

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Schedule is a sequence of due times. It is safe for concurrent use.
type Schedule struct {
	// Sleep waits for a few milliseconds at most. New sets a precise sleep; tests on
	// virtual time set time.Sleep.
	Sleep func(time.Duration)

	turn chan struct{} // holds an element while no caller waits
	rng  *rand.Rand
	next time.Time
	end  time.Time
	mean float64 // mean interval in nanoseconds
}

// New returns a schedule from start on with the mean rate in calls per second. The
// random intervals are the same each time.
func New(start time.Time, duration time.Duration, rate float64) *Schedule {
	s := &Schedule{
		Sleep: sleep,
		turn:  make(chan struct{}, 1),
		rng:   rand.New(rand.NewPCG(1, 2)),
		next:  start,
		end:   start.Add(duration),
		mean:  float64(time.Second) / rate,
	}
	s.advance()
	s.turn <- struct{}{}
	return s
}

// advance draws the next interval from an exponential distribution.
func (s *Schedule) advance() {
	s.next = s.next.Add(time.Duration(s.rng.ExpFloat64() * s.mean))
}

// Next waits for the next due time and returns it. The time is in the past if no caller
// was free. It is not ok at the end of the schedule or if ctx ends.
func (s *Schedule) Next(ctx context.Context) (due time.Time, ok bool) {
	select {
	case <-s.turn:
	case <-ctx.Done():
		return due, false
	}
	defer func() { s.turn <- struct{}{} }()
	if due = s.next; !due.Before(s.end) || !s.wait(ctx, due) {
		return due, false
	}
	s.advance()
	return due, true
}

// Missed returns the number of calls that were due by now and not returned by Next. The
// callers must have stopped.
func (s *Schedule) Missed(now time.Time) (n int64) {
	for ; s.next.Before(s.end) && !s.next.After(now); s.advance() {
		n++
	}
	return n
}

// timerError is the maximum delay of a runtime timer: an idle process waits for timers in
// whole milliseconds.
const timerError = 2 * time.Millisecond

// wait waits until due. It returns false if ctx has ended.
func (s *Schedule) wait(ctx context.Context, due time.Time) bool {
	if long := time.Until(due) - timerError; long > 0 {
		timer := time.NewTimer(long)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
	}
	for rest := time.Until(due); rest > 0; rest = time.Until(due) {
		s.Sleep(rest)
	}
	return ctx.Err() == nil
}
