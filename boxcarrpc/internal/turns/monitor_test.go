package turns

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMonitorTicksFastAfterALongHandler(t *testing.T) {
	var m Monitor
	m.Init()
	long := m.created.Add(time.Minute)
	require.Equal(t, calmTick, m.tickLength(m.created))
	require.Equal(t, calmTick, m.tickLength(long))
	m.noteLong(long)
	require.Equal(t, Tick, m.tickLength(long))
	require.Equal(t, Tick, m.tickLength(long.Add(longHandlerMemory-1)))
	require.Equal(t, calmTick, m.tickLength(long.Add(longHandlerMemory)))
}

// Only the first connection wakes the monitor. If each one did, every new connection would
// cause a tick, the tick would drop connections whose leader is outside of a handler, and
// those would wake it again: with 64 connections it never slept.
func TestMonitorIsWokenByTheFirstConnectionOnly(t *testing.T) {
	var m Monitor
	m.Init()
	woken := func() bool {
		select {
		case <-m.wake:
			return true
		default:
			return false
		}
	}
	first, second := &Turn{}, &Turn{}
	m.add(first)
	require.True(t, woken())
	m.add(second)
	require.False(t, woken())
	for range idleTicks - 1 {
		require.Equal(t, pausedTick, m.tick())
	}
	require.Zero(t, m.tick())
	m.add(second)
	require.True(t, woken(), "the monitor sleeps while it has no connection")
}
