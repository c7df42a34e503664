package ctxtime

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/virtualtime"
)

func TestSleep(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		begun := time.Now()
		require.True(t, Sleep(t.Context(), time.Hour))
		require.Equal(t, time.Hour, time.Since(begun))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.False(t, Sleep(ctx, time.Hour))
		require.Equal(t, time.Hour+time.Minute, time.Since(begun))
	})
}
