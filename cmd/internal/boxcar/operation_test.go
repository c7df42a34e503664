package boxcar

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/internal/virtualtime"
)

// An operation is repeated while the server refuses it because of others in progress, until the
// timeout. Other errors are final.
func TestRefusedOperationsAreRepeated(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		refused := &boxcarrpc.Error{Code: boxcarrpc.CodeResourceExhausted}
		answers := []error{refused, refused, nil}
		ask := func() (err error) {
			err, answers = answers[0], answers[1:]
			return err
		}
		require.NoError(t, whileRefused(t.Context(), ask))
		other := errors.New("other")
		answers = []error{refused, other}
		require.ErrorIs(t, whileRefused(t.Context(), ask), other)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		calls := 0
		require.ErrorIs(t, whileRefused(ctx, func() error { calls++; return refused }), refused)
		require.InDelta(t, int(time.Second/refusedPause), calls, 1) // the last one may be at the timeout
	})
}
