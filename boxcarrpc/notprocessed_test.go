package boxcarrpc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// A handler acts on a request, then calls another server and returns that call's error,
// wrapped in any way. The request is sent once, and the handler's server is not paused.
func TestARequestIsNotRepeatedBecauseACallOfItsHandlerFailed(t *testing.T) {
	rng := testseed.Rand(t)
	down := serve(t, func(_ context.Context, _ string, request, dst []byte) ([]byte, error) {
		return dst, NotProcessed(randomError(rand.New(rand.NewPCG(uint64(request[0]), 0)), nil))
	}, nil)
	next := newPool(t, &PoolOptions{Size: 1, MaxRetries: -1}, down.address)
	var acted atomic.Int64
	var answer error // written before Call, read during it
	middle := func(_ context.Context, _ string, _, dst []byte) ([]byte, error) {
		acted.Add(1)
		return dst, answer
	}
	first, second := serve(t, middle, nil), serve(t, middle, nil)
	p := newPool(t, &PoolOptions{Size: 2, RetryRatio: 100}, first.address, second.address)
	for range 200 {
		_, nested := next.Call(t.Context(), "m", []byte{byte(rng.Uint32())}, nil)
		require.Error(t, nested)
		unmarked := randomError(rng, nested)
		if rng.IntN(4) == 0 { // a marked error of a handler called in this process
			unmarked = fmt.Errorf("delegating: %w", NotProcessed(unmarked))
		}
		answer = unmarked
		before := acted.Load()
		_, err := p.Call(t.Context(), "m", nil, nil)
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, before+1, acted.Load(), "handled more than once after %v", answer)
		require.True(t, e.Processed, "%v", answer)
		for peer := range int32(2) {
			paused := p.slots.peer(peer).Paused
			require.False(t, paused, "paused after %v", answer)
		}
	}

	answer = NotProcessed(errors.New("starting"))
	before := acted.Load()
	_, err := p.Call(t.Context(), "m", nil, nil)
	require.Equal(t, CodeUnavailable, CodeOf(err))
	require.Greater(t, acted.Load(), before+1, "a marked error is retried")
}

// randomError returns the error of a handler, which may wrap nested.
func randomError(rng *rand.Rand, nested error) error {
	plain := []error{
		ErrPoolBusy, ErrNoServer, errRetryBudget, context.DeadlineExceeded, errors.New("no memory"),
		&Error{Code: CodeUnavailable}, &Error{Code: CodeResourceExhausted, Message: "full"}, &Error{Code: CodeAborted},
	}
	err := plain[rng.IntN(len(plain))]
	if nested != nil && rng.IntN(2) == 0 {
		err = nested
	}
	for range rng.IntN(3) {
		switch rng.IntN(3) {
		case 0:
			err = fmt.Errorf("asking the next: %w", err)
		case 1:
			err = errors.Join(errors.New("two failures"), err)
		case 2:
			err = &Error{Code: CodeUnavailable, Message: "as the cause", cause: err}
		}
	}
	return err
}
