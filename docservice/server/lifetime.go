package server

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
)

// lifetime is the state of a running server and its goroutines.
type lifetime struct {
	lock    io.Closer       // of the data directory
	alive   context.Context // until the server is closed
	end     context.CancelFunc
	ending  atomic.Bool // set before the listeners close: /readyz answers 503
	serving sync.WaitGroup
	failed  chan struct{} // closed when a listener fails
	failure struct {
		sync.Once
		err error
	}
}

func (l *lifetime) begin() {
	l.alive, l.end = context.WithCancel(context.Background())
	l.failed = make(chan struct{})
}

// Note records the error of a listener, unless it is the expected one of a shutdown. The
// daemon then fails.
func (l *lifetime) Note(err, told error) {
	if !errors.Is(err, told) {
		l.failure.Do(func() {
			l.failure.err = err
			close(l.failed)
		})
	}
}

// Alive returns a context that ends when the server is closed.
func (l *lifetime) Alive() context.Context { return l.alive }

// Go runs f in a goroutine, which the end of Alive must stop. Stop waits for it.
func (l *lifetime) Go(f func()) { l.serving.Go(f) }

// Failed is closed when a listener fails. Stop returns its error.
func (l *lifetime) Failed() <-chan struct{} { return l.failed }

// Ending reports whether the server is being stopped.
func (l *lifetime) Ending() bool { return l.ending.Load() }
