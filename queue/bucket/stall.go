package bucket

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/errors"
)

// errStalled is the cause of a transfer that made no progress.
var errStalled = errors.New("bucket: the transfer made no progress")

// stallWatch cancels a transfer that makes no progress for a time.
type stallWatch struct {
	timeout time.Duration
	timer   *time.Timer
	ctx     context.Context
	cancel  context.CancelCauseFunc

	mu      sync.Mutex
	stopped bool
}

// watchStall returns a context that ends when add is not called for the timeout.
func watchStall(ctx context.Context, timeout time.Duration) (context.Context, *stallWatch) {
	w := &stallWatch{timeout: timeout}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.timer = time.AfterFunc(timeout, func() { w.cancel(errStalled) })
	return w.ctx, w
}

// add reports progress.
func (w *stallWatch) add() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.timer.Reset(w.timeout)
	}
}

// pause stops the clock until the next add.
func (w *stallWatch) pause() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
}

// stop ends the watch and cancels the context.
func (w *stallWatch) stop() {
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	w.timer.Stop()
	w.cancel(nil)
}

// explain turns the error of a transfer that stalled into a temporary one.
func (w *stallWatch) explain(err error) error {
	if err != nil && errors.Is(context.Cause(w.ctx), errStalled) {
		return &temporaryError{error: errors.Wrapf(errStalled, "for %v", w.timeout)}
	}
	return err
}

// uploadBody is the body of a Put. It reports progress when it is read, and keeps an error
// of its reader apart from errors of the store.
type uploadBody struct {
	io.ReaderAt
	size  int64 // bytes
	watch *stallWatch
	err   atomic.Pointer[error] // of the reader
}

func (b *uploadBody) ReadAt(p []byte, offset int64) (int, error) {
	b.watch.add()
	n, err := b.ReaderAt.ReadAt(p, offset)
	if errors.Is(err, io.EOF) && offset+int64(n) < b.size {
		err = errors.Newf("bucket: the body of a put has %d bytes, want %d", offset+int64(n), b.size)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.err.CompareAndSwap(nil, &err)
	}
	return n, err
}

// explain returns the reader's error, which another attempt would meet again, or else err.
func (b *uploadBody) explain(err error) error {
	if own := b.err.Load(); own != nil && err != nil {
		return *own
	}
	return b.watch.explain(err)
}
