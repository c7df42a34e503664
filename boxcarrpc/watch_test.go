package boxcarrpc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheWatchLooksCloselyForAWhileAfterALongHandler(t *testing.T) {
	var w watch
	w.init()
	long := w.begun.Add(time.Minute)
	require.Equal(t, watchCalmTick, w.pace(w.begun))
	require.Equal(t, watchCalmTick, w.pace(long))
	w.alarm(long)
	require.Equal(t, watchTick, w.pace(long))
	require.Equal(t, watchTick, w.pace(long.Add(watchMemory-1)))
	require.Equal(t, watchCalmTick, w.pace(long.Add(watchMemory)))
}

// The watch is woken for the first connection that it is to look at. Were it for each, it
// would look at all of them whenever one comes, would let those go whose leaders it has met
// outside of handlers, and would be woken by them again: with a connection for each of 64
// callers it never slept.
func TestTheWatchIsNotWokenForEachConnection(t *testing.T) {
	var w watch
	w.init()
	woken := func() bool {
		select {
		case <-w.wake:
			return true
		default:
			return false
		}
	}
	first, second := &serverConn{}, &serverConn{}
	w.add(first)
	require.True(t, woken())
	w.add(second)
	require.False(t, woken())
	for range watchIdle - 1 {
		require.Equal(t, watchLongTick, w.tick())
	}
	require.Zero(t, w.tick())
	w.add(second)
	require.True(t, woken(), "it sleeps when there is none to look at")
}
