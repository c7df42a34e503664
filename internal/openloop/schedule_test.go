package openloop

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/virtualtime"
)

// Callers that are always free make each call on time, at the given rate.
func TestCallsAreDueAtTheRate(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		s := New(time.Now(), 10*time.Second, 1000)
		s.Sleep = time.Sleep
		var calls atomic.Int64
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for due, ok := s.Next(t.Context()); ok; due, ok = s.Next(t.Context()) {
					require.Equal(t, due, time.Now())
					calls.Add(1)
				}
			})
		}
		callers.Wait()
		require.InDelta(t, 10_000, calls.Load(), 500)
		require.Zero(t, s.Missed(time.Now()))
	})
}

// Next returns the past due times of late calls.
func TestLateCallsKeepTheirDueTimes(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		start := time.Now()
		whole := New(start, time.Second, 100).Missed(start.Add(time.Second))
		s := New(start, time.Second, 100)
		s.Sleep = time.Sleep
		time.Sleep(500 * time.Millisecond)
		made, late := int64(0), 0
		for due, ok := s.Next(t.Context()); ok && made < whole-5; due, ok = s.Next(t.Context()) {
			made++
			if due.Before(time.Now()) {
				late++
			}
		}
		require.InDelta(t, 50, late, 20)
		require.Equal(t, whole, made+1+s.Missed(start.Add(time.Minute)), "one call was taken and not counted")
	})
}

func TestAContextEndsTheWait(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		s := New(time.Now(), time.Hour, 0.001)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		var waiting sync.WaitGroup
		for range 2 { // one for the due time, one for the other caller
			waiting.Go(func() {
				_, ok := s.Next(ctx)
				require.False(t, ok)
			})
		}
		waiting.Wait()
		require.Equal(t, time.Second, time.Since(start))
	})
}

// The kernel's sleep does not end early.
func TestNextNeverReturnsEarly(t *testing.T) {
	s := New(time.Now(), 50*time.Millisecond, 2000)
	calls := 0
	for due, ok := s.Next(t.Context()); ok; due, ok = s.Next(t.Context()) {
		require.False(t, time.Now().Before(due))
		calls++
	}
	require.Positive(t, calls)
}
