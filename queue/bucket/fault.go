package bucket

import (
	"context"
	"io"
	"iter"
)

// Failure makes a request of a Fault fail for a temporary reason, as a store that is overloaded
// or cannot be reached.
type Failure struct {
	Err      error
	SlowDown bool // the store asks for fewer requests
	// Executed: the request is executed, and its response is lost. Of a Get, that many bytes
	// arrive before Err.
	Executed bool
	Bytes    int64
}

// Fault is a Bucket that calls a hook before each request, for tests. Requests that the hook does
// not let fail go to another Bucket, of this package.
type Fault struct {
	Bucket
	hook func(ctx context.Context, operation, name string) *Failure
}

// NewFault wraps a bucket. The hook gets the operation in lower case and the name of the object, or
// the prefix of a list; it must be safe for concurrent use. A nil result executes the request.
func NewFault(b Bucket, hook func(ctx context.Context, operation, name string) *Failure) *Fault {
	return &Fault{b, hook}
}

func (f *Failure) error() error { return &temporaryError{error: f.Err, slowDown: f.SlowDown} }

// Get implements Bucket.
func (f *Fault) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	failure := f.hook(ctx, "get", name)
	if failure != nil && !failure.Executed {
		return nil, failure.error()
	}
	body, err := f.Bucket.Get(ctx, name, offset, length)
	sized, ok := body.(*sizedReader)
	if err != nil || failure == nil || !ok {
		return body, err
	}
	cut := io.MultiReader(io.LimitReader(sized, failure.Bytes), brokenBody{failure.error()})
	return &sizedReader{cut, sized, sized.size}, nil
}

// brokenBody is a body that breaks off.
type brokenBody struct{ err error }

func (b brokenBody) Read([]byte) (int, error) { return 0, b.err }

// Put implements Bucket.
func (f *Fault) Put(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	return f.do(ctx, "put", name, func() error { return f.Bucket.Put(ctx, name, body, size) })
}

// Head implements Bucket.
func (f *Fault) Head(ctx context.Context, name string) (info Info, err error) {
	err = f.do(ctx, "head", name, func() error {
		info, err = f.Bucket.Head(ctx, name)
		return err
	})
	return info, err
}

// Delete implements Bucket.
func (f *Fault) Delete(ctx context.Context, name string) error {
	return f.do(ctx, "delete", name, func() error { return f.Bucket.Delete(ctx, name) })
}

func (f *Fault) do(ctx context.Context, operation, name string, request func() error) error {
	failure := f.hook(ctx, operation, name)
	if failure == nil {
		return request()
	}
	if failure.Executed {
		_ = request() // its response is lost
	}
	return failure.error()
}

// List implements Bucket.
func (f *Fault) List(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if failure := f.hook(ctx, "list", prefix); failure != nil {
			yield(Info{}, failure.error())
			return
		}
		f.Bucket.List(ctx, prefix, after)(yield)
	}
}
