package simulate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/virtualtime"
)

func TestClock(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		var c clock
		before := c.now()
		require.True(t, before.Equal(time.Now()))
		time.Sleep(time.Second)
		c.offset.Store(-3600)
		after := c.now()
		require.Equal(t, time.Second, after.Sub(before), "differences do not step")
		require.Equal(t, time.Second-time.Hour, after.Round(0).Sub(before.Round(0)))
		require.True(t, after.Round(0).Equal(time.Now().Add(-time.Hour)))
	})
}
