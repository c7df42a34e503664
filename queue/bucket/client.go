package bucket

import (
	"context"
	"io"
	"iter"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/errors"

	"docstore/internal/ctxtime"
)

const (
	// firstBackoff and lastBackoff bound the pause before an attempt. Each pause is random
	// between zero and a bound that doubles with each attempt.
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 10 * time.Second
)

// Client is a Bucket that repeats failed requests, limits requests and bytes in flight, and
// counts requests.
type Client struct {
	backend Bucket
	options Options
	limiter *limiter
	stats   [operations]operationStats
}

var _ Bucket = (*Client)(nil)

// NewClient returns a Client for a backend.
func NewClient(backend Bucket, options Options) (*Client, error) {
	if err := options.setDefaults(); err != nil {
		return nil, err
	}
	return &Client{backend: backend, options: options, limiter: newLimiter(options.MaxRequests, options.MaxBytes)}, nil
}

// Put implements Bucket. After an attempt whose response was lost, ErrExist may mean that
// this very Put created the object.
func (c *Client) Put(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	return c.repeatLimited(ctx, opPut, max(size, 0), func(ctx context.Context) error {
		watched, progress := watchStall(ctx, c.options.StallTimeout)
		defer progress.stop()
		upload := &uploadBody{ReaderAt: body, size: size, watch: progress}
		err := c.backend.Put(watched, name, upload, size)
		if err == nil {
			c.stats[opPut].bytes.Add(size)
		}
		return upload.explain(err)
	})
}

// Head implements Bucket.
func (c *Client) Head(ctx context.Context, name string) (info Info, err error) {
	err = c.repeatLimited(ctx, opHead, 0, func(ctx context.Context) error {
		info, err = c.short(ctx, func(ctx context.Context) (Info, error) { return c.backend.Head(ctx, name) })
		return err
	})
	return info, err
}

// Delete implements Bucket.
func (c *Client) Delete(ctx context.Context, name string) error {
	return c.repeatLimited(ctx, opDelete, 0, func(ctx context.Context) error {
		_, err := c.short(ctx, func(ctx context.Context) (Info, error) { return Info{}, c.backend.Delete(ctx, name) })
		return err
	})
}

// short runs a request without a body: it has StallTimeout in all.
func (c *Client) short(ctx context.Context, request func(context.Context) (Info, error)) (Info, error) {
	watched, progress := watchStall(ctx, c.options.StallTimeout)
	defer progress.stop()
	info, err := request(watched)
	return info, progress.explain(err)
}

// List implements Bucket. It continues after the last object it returned when a page
// fails.
func (c *Client) List(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		stopped := false
		err := c.repeatLimited(ctx, opList, 0, func(ctx context.Context) error {
			watched, progress := watchStall(ctx, c.options.StallTimeout)
			defer progress.stop()
			for info, err := range c.backend.List(watched, prefix, after) {
				if err != nil {
					return progress.explain(err)
				}
				progress.pause() // while the caller works
				if stopped = !yield(info, nil); stopped {
					return nil
				}
				progress.add()
				after = info.Name
			}
			return nil
		})
		if err != nil && !stopped {
			yield(Info{}, err)
		}
	}
}

// repeatLimited is repeat for attempts that are limited from their begin to their end.
func (c *Client) repeatLimited(ctx context.Context, op operation, bytes int64, attempt func(context.Context) error) error {
	return c.repeat(ctx, op, func(ctx context.Context) error {
		charged, err := c.limiter.acquire(ctx, bytes)
		if err != nil {
			return err
		}
		defer c.limiter.release(charged)
		c.stats[op].requests.Add(1)
		return attempt(ctx)
	})
}

// repeat runs attempts until one succeeds, fails for a reason that is not temporary, or
// Options.Timeout is over.
func (c *Client) repeat(ctx context.Context, op operation, attempt func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	var last error
	for n := 0; ; n++ {
		if n > 0 {
			if !ctxtime.Sleep(limited, backoff(n)) {
				break
			}
			c.stats[op].retries.Add(1)
		}
		err := c.observe(op, attempt(limited))
		if limited.Err() != nil && err != nil && last != nil {
			break // err says only that the time is over
		}
		if err == nil || !temporary(err) {
			return err
		}
		last = err
	}
	c.stats[op].failures.Add(1)
	if ctx.Err() != nil {
		return errors.CombineErrors(errors.Wrapf(context.Cause(ctx), "bucket: %s", op), last)
	}
	return errors.Wrapf(last, "bucket: %s given up after %v", op, c.options.Timeout)
}

// observe adapts the concurrency to the outcome of an attempt, reports it and counts failures.
func (c *Client) observe(op operation, err error) error {
	switch {
	case asksToSlowDown(err):
		c.limiter.slowDown(time.Now())
		c.options.Observe(err)
	case err == nil || errors.Is(err, ErrExist) || errors.Is(err, ErrNotExist):
		c.limiter.succeeded()
		c.options.Observe(nil)
	case temporary(err):
		c.options.Observe(err)
	default:
		c.stats[op].failures.Add(1)
	}
	return err
}

// backoff returns the pause before attempt n; the first attempt is 0.
func backoff(n int) time.Duration {
	bound := lastBackoff
	if n < 8 {
		bound = min(bound, firstBackoff<<(n-1))
	}
	return rand.N(bound)
}

// operation is a kind of request.
type operation uint8

const (
	opGet operation = iota
	opPut
	opHead
	opList
	opDelete
	operations
)

func (o operation) String() string {
	return [...]string{opGet: "get", opPut: "put", opHead: "head", opList: "list", opDelete: "delete"}[o]
}

type operationStats struct {
	requests, retries, failures, bytes atomic.Int64
}

// OperationStats counts the requests of one kind since the Client was made.
type OperationStats struct {
	Operation string // get, put, head, list or delete
	Requests  int64  // attempts that were sent; a List counts once for all its pages
	Retries   int64  // attempts after the first of an operation
	Failures  int64  // operations that failed in the end, other than by ErrExist or ErrNotExist
	Bytes     int64  // of objects, received or sent
}

// Stats describes the work of a Client.
type Stats struct {
	Operations  []OperationStats
	InFlight    int   // requests
	Concurrency int   // the present bound of requests in flight
	SlowDowns   int64 // requests that the store refused because there were too many
}

// Stats returns the counters.
func (c *Client) Stats() Stats {
	var s Stats
	for op := range operations {
		o := &c.stats[op]
		s.Operations = append(s.Operations, OperationStats{
			Operation: op.String(), Requests: o.requests.Load(), Retries: o.retries.Load(), Failures: o.failures.Load(), Bytes: o.bytes.Load(),
		})
	}
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	s.InFlight, s.Concurrency, s.SlowDowns = c.limiter.mu.requests, int(c.limiter.mu.limit), c.limiter.mu.slowDowns
	return s
}

// CloseIdle closes the idle connections of the Client.
func (c *Client) CloseIdle() {
	if closer, ok := c.backend.(interface{ closeIdle() }); ok {
		closer.closeIdle()
	}
}
