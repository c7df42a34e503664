package bucket

import (
	"context"
	"io"

	"github.com/cockroachdb/errors"

	"docstore/internal/ctxtime"
)

// Get implements Bucket. The reader continues with another request where a connection
// broke. It counts as a request in flight until it is closed; a Get of known length is
// charged its bytes as well.
func (c *Client) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	r := &resumingReader{client: c, ctx: ctx, name: name, offset: offset, rest: -1, length: length}
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, nil
}

// resumingReader reads an object with as many requests as it takes.
type resumingReader struct {
	client *Client
	ctx    context.Context // of the whole Get
	name   string
	offset int64 // of the next byte
	length int64 // as asked for; negative: to the end
	rest   int64 // bytes to come; negative before the first request succeeded

	body     io.ReadCloser // nil between requests and after Close
	charged  int64
	watch    *stallWatch
	failures int // requests that broke since the last byte arrived
	closed   bool
}

// open sends requests until one succeeds.
func (r *resumingReader) open() error {
	if r.failures > 0 && !ctxtime.Sleep(r.ctx, backoff(r.failures)) {
		return context.Cause(r.ctx)
	}
	return r.client.repeat(r.ctx, opGet, func(ctx context.Context) error {
		length := r.length
		if r.rest >= 0 {
			length = r.rest
		}
		charged, err := r.client.limiter.acquire(ctx, max(length, 0))
		if err != nil {
			return err
		}
		r.client.stats[opGet].requests.Add(1)
		// The body outlives ctx, which bounds the attempts to get it.
		watched, watch := watchStall(r.ctx, r.client.options.StallTimeout)
		body, err := r.client.backend.Get(watched, r.name, r.offset, length)
		watch.pause()
		if err == nil {
			err = r.checkSize(body)
		}
		if err != nil {
			err = watch.explain(err)
			watch.stop()
			r.client.limiter.release(charged)
			return err
		}
		r.body, r.watch, r.charged = body, watch, charged
		return nil
	})
}

// checkSize notes how many bytes follow, and that another request finds as many.
func (r *resumingReader) checkSize(body io.ReadCloser) error {
	sized, ok := body.(*sizedReader)
	if !ok {
		_ = body.Close()
		return errors.AssertionFailedf("bucket: a backend returned a %T", body)
	}
	if r.rest >= 0 && sized.size != r.rest {
		_ = body.Close()
		return errors.Newf("bucket: get %s: the object changed while it was read: %d bytes follow offset %d, want %d", r.name, sized.size, r.offset, r.rest)
	}
	r.rest = sized.size
	return nil
}

// Read implements io.Reader.
func (r *resumingReader) Read(p []byte) (int, error) {
	if r.closed {
		return 0, errors.Newf("bucket: read %s after its close", r.name)
	}
	for r.rest > 0 && len(p) > 0 {
		if r.body == nil {
			if err := r.open(); err != nil {
				return 0, err
			}
		}
		r.watch.add()
		n, err := r.body.Read(p[:min(int64(len(p)), r.rest)])
		r.watch.pause()
		if n > 0 {
			r.offset, r.rest, r.failures = r.offset+int64(n), r.rest-int64(n), 0
			r.client.stats[opGet].bytes.Add(int64(n))
		}
		if err != nil && r.rest > 0 {
			r.release()
			if r.ctx.Err() != nil {
				return n, context.Cause(r.ctx)
			}
			if r.failures++; r.failures > maxBrokenReads {
				return n, errors.Wrapf(err, "bucket: get %s: %d requests in a row broke at offset %d", r.name, r.failures, r.offset)
			}
			r.client.stats[opGet].retries.Add(1)
		}
		if n > 0 {
			return n, nil
		}
	}
	if r.rest > 0 {
		return 0, nil
	}
	return 0, io.EOF
}

// maxBrokenReads bounds the requests in a row that succeed without delivering a byte.
const maxBrokenReads = 10

// Remaining returns the number of bytes that follow.
func (r *resumingReader) Remaining() int64 { return r.rest }

// release ends the present request.
func (r *resumingReader) release() {
	if r.body == nil {
		return
	}
	_ = r.body.Close()
	r.watch.stop()
	r.client.limiter.release(r.charged)
	r.body = nil
}

// Close implements io.Closer.
func (r *resumingReader) Close() error {
	r.release()
	r.closed = true
	return nil
}

// ReadAll returns a whole object of at most maxBytes bytes.
func ReadAll(ctx context.Context, b Bucket, name string, maxBytes int64) ([]byte, error) {
	r, err := b.Get(ctx, name, 0, maxBytes+1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err == nil && int64(len(data)) > maxBytes {
		err = errors.Newf("bucket: get %s: the object has more than %d bytes", name, maxBytes)
	}
	return data, err
}
