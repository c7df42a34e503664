package boxcarrpc

import (
	"context"
	"errors"
	"fmt"
)

const (
	// DefaultRetryRatio is the default of PoolOptions.RetryRatio.
	DefaultRetryRatio = 0.2
	// A pool may make so many further attempts a second whatever its calls are.
	retriesPerSecond = 10
)

// errRetryBudget is why there is no further attempt although the request may be
// sent again.
var errRetryBudget error = &Error{Code: CodeResourceExhausted, Message: "the retry budget is used up"}

// A call is what all attempts of one have in common.
type call struct {
	method  string
	request []byte
	rule    Method
	info    *CallInfo // nil: nobody asks
	hedge   *hedge    // nil: none
}

// attempts sends a request until it is answered or is not to be sent again.
func (p *Pool) attempts(ctx context.Context, c *call, dst []byte) ([]byte, error) {
	var (
		few   [4]int32
		tried = few[:0] // servers
		last  error
	)
	for n := 0; ; n++ {
		lane, err := p.acquire(ctx, tried)
		if err != nil {
			return dst, retrySlotError(last, err)
		}
		if n > 0 {
			p.counts.retries.Add(1)
		}
		peer := lane.transport.peer.index
		c.hedge.setPrimary(peer)
		out, again, err := p.exchange(ctx, lane, c, dst)
		if err == nil {
			return out, nil
		}
		err = mergeAttemptErrors(last, err)
		if !again || n >= p.options.MaxRetries || ctx.Err() != nil {
			return dst, err
		}
		tried, last = append(tried, peer), err
	}
}

// mergeAttemptErrors is the error of an attempt after another: if either may have been
// processed, the call may.
func mergeAttemptErrors(last, err error) error {
	var before, e *Error
	if !errors.As(last, &before) || !before.Processed || !errors.As(err, &e) || e.Processed {
		return err
	}
	stained := *e
	stained.Processed = true
	return &stained
}

// retrySlotError is the error of a call that got no slot: if it was for a further
// attempt, what became of the last one says more.
func retrySlotError(last, err error) error {
	var e *Error
	if !errors.As(last, &e) {
		return err
	}
	return &Error{
		Code:      e.Code,
		Message:   "no further attempt",
		Processed: e.Processed,
		cause:     fmt.Errorf("%w (the attempt before: %w)", err, last),
	}
}
