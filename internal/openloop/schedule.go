// Package openloop says when calls of an open-loop load are due: at random moments,
// as of many who do not know of each other, whatever becomes of the calls before.
//
//	schedule := openloop.New(start, duration, rate)
//	for due, ok := schedule.Next(ctx); ok; due, ok = schedule.Next(ctx) {
//		call()
//		latency := time.Since(due) // however late the call was made
//	}
//
// Any number of callers take from one schedule. One of them waits for the moment and
// makes the call, then the next one waits: so whoever is free makes the call that is
// due next, and only one thread waits, as exactly as the machine can.
package openloop

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Schedule is the moments when calls are due. It is safe for concurrent use.
type Schedule struct {
	// Sleep waits for a time below a few milliseconds; nil for the kernel's own sleep.
	// Tests on virtual time set time.Sleep.
	Sleep func(time.Duration)

	turn chan struct{} // holds an element while nobody waits
	rng  *rand.Rand
	next time.Time
	end  time.Time
	mean float64 // nanoseconds between two
}

// New makes a schedule of rate calls a second on the average from start on. It is the
// same each time.
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

// advance draws the gap to the next call: exponential, as between the calls of many.
func (s *Schedule) advance() {
	s.next = s.next.Add(time.Duration(s.rng.ExpFloat64() * s.mean))
}

// Next waits until a call is due and returns when that was: in the past, if no caller
// was free. It returns false when no more are due, or ctx has ended.
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

// Missed counts the calls that were due by now, or the end, and that nobody made. The
// callers have stopped.
func (s *Schedule) Missed(now time.Time) (n int64) {
	for ; s.next.Before(s.end) && !s.next.After(now); s.advance() {
		n++
	}
	return n
}

// timerError is how late a timer of the runtime may be: a process that has nothing
// else to do waits for timers in whole milliseconds.
const timerError = 2 * time.Millisecond

// wait waits until due. It returns false if ctx has ended before.
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
