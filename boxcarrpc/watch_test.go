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
