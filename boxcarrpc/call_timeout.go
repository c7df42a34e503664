package boxcarrpc

import (
	"context"
	"sync"
	"time"
)

// A limited is the context of a call whose own has no deadline: it ends CallTimeout
// later. Its timer and channel come into being when the call waits for them, which few
// do: most answers come before. One goroutine uses it.
type limited struct {
	context.Context           // the caller's
	deadline        time.Time // of the call
	within          context.Context
	cancel          context.CancelFunc // nil until the call waits
}

var limitedPool = sync.Pool{New: func() any { return new(limited) }}

// limit is context.WithTimeout for one call. release ends it: nobody may use it any
// more.
func limit(ctx context.Context, timeout time.Duration) *limited {
	l := limitedPool.Get().(*limited)
	l.Context, l.deadline = ctx, time.Now().Add(timeout)
	return l
}

func (l *limited) release() {
	if l.cancel != nil {
		l.cancel()
	}
	*l = limited{}
	limitedPool.Put(l)
}

func (l *limited) Deadline() (time.Time, bool) { return l.deadline, true }

func (l *limited) Done() <-chan struct{} {
	if l.cancel == nil {
		l.within, l.cancel = context.WithDeadline(l.Context, l.deadline)
	}
	return l.within.Done()
}

func (l *limited) Err() error {
	if l.cancel == nil {
		return l.Context.Err() // who has not waited has not waited for too long
	}
	return l.within.Err()
}
