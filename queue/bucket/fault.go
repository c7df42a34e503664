package bucket

import (
	"context"
	"io"
	"iter"

	"github.com/cockroachdb/errors"
)

// Failure makes a request of a Fault fail, as a store that is overloaded or cannot be reached.
type Failure struct {
	// Err is temporary, like an error of a connection, unless it is an end of the context,
	// ErrDenied, ErrNoBucket or ErrClockSkew.
	Err      error
	SlowDown bool // the store asks for fewer requests
	// Executed: the request is executed, even if the context is over, and its response is lost.
	// Part of a Get or a List arrives: that many bytes of the body, or objects. If the response
	// Stalls, Err of a Get follows only when its context is over.
	Executed bool
	Part     int64
	Stalls   bool
	// Wrong: a Get succeeds, and the lowest bit of byte Part of its body is inverted. Err is unused.
	Wrong bool
}

func (f *Failure) error() error {
	for _, permanent := range []error{context.Canceled, context.DeadlineExceeded, ErrDenied, ErrNoBucket, ErrClockSkew} {
		if errors.Is(f.Err, permanent) {
			return f.Err
		}
	}
	return &temporaryError{error: f.Err, slowDown: f.SlowDown}
}

// Fault is a Bucket that calls a hook before each request, for tests. Requests that the hook does
// not let fail go to another Bucket, of this package.
type Fault struct {
	bucket Bucket
	hook   func(ctx context.Context, operation, name string) *Failure
}

var _ Bucket = (*Fault)(nil)

// NewFault wraps a bucket. The hook gets the operation in lower case and the name of the object, or
// the prefix of a list; it must be safe for concurrent use. A nil result executes the request.
func NewFault(b Bucket, hook func(ctx context.Context, operation, name string) *Failure) *Fault {
	return &Fault{b, hook}
}

// Get implements Bucket.
func (f *Fault) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	failure := f.hook(ctx, "get", name)
	if failure != nil && !failure.Executed && !failure.Wrong {
		return nil, failure.error()
	}
	body, err := f.bucket.Get(ctx, name, offset, length)
	sized, ok := body.(*sizedReader)
	if err != nil || failure == nil || !ok {
		return body, err
	}
	if failure.Wrong {
		return &sizedReader{&wrongBody{from: sized, left: failure.Part}, sized, sized.size}, nil
	}
	part := io.MultiReader(io.LimitReader(sized, failure.Part), brokenBody{ctx, failure})
	return &sizedReader{part, sized, sized.size}, nil
}

// brokenBody is the end of a body that breaks off.
type brokenBody struct {
	ctx     context.Context
	failure *Failure
}

func (b brokenBody) Read([]byte) (int, error) {
	if b.failure.Stalls {
		<-b.ctx.Done()
	}
	return 0, b.failure.error()
}

// wrongBody is a body with an inverted bit.
type wrongBody struct {
	from io.Reader
	left int64 // bytes before the wrong one
}

func (b *wrongBody) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if b.left >= 0 && b.left < int64(n) {
		p[b.left] ^= 1
	}
	b.left -= int64(n)
	return n, err
}

// Put implements Bucket.
func (f *Fault) Put(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	return f.do(ctx, "put", name, func(ctx context.Context) error { return f.bucket.Put(ctx, name, body, size) })
}

// Head implements Bucket.
func (f *Fault) Head(ctx context.Context, name string) (info Info, err error) {
	err = f.do(ctx, "head", name, func(ctx context.Context) error {
		info, err = f.bucket.Head(ctx, name)
		return err
	})
	return info, err
}

// Delete implements Bucket.
func (f *Fault) Delete(ctx context.Context, name string) error {
	return f.do(ctx, "delete", name, func(ctx context.Context) error { return f.bucket.Delete(ctx, name) })
}

func (f *Fault) do(ctx context.Context, operation, name string, request func(context.Context) error) error {
	failure := f.hook(ctx, operation, name)
	if failure == nil {
		return request(ctx)
	}
	if failure.Executed {
		_ = request(context.WithoutCancel(ctx)) // its response is lost
	}
	return failure.error()
}

// List implements Bucket.
func (f *Fault) List(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		failure := f.hook(ctx, "list", prefix)
		if failure == nil {
			f.bucket.List(ctx, prefix, after)(yield)
			return
		}
		if failure.Executed && failure.Part > 0 {
			left := failure.Part
			for info, err := range f.bucket.List(ctx, prefix, after) {
				if !yield(info, err) || err != nil {
					return
				}
				if left--; left == 0 {
					break
				}
			}
		}
		yield(Info{}, failure.error())
	}
}
