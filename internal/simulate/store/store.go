// Package store simulates an object store in the virtual time of a test bubble
// (testing/synctest).
//
//	s, err := store.New(chance.New(seed))
//	view := s.For("server-1", reachable)            // what this host sees
//	client, err := bucket.NewClient(view, bucket.Options{})
//
// A request takes the time of an S3 request. As S3 the store is strongly consistent, and creates
// an object once. Faults are methods that return the function that ends them: the store is away,
// requests fail, responses are lost, or bodies break off. All types are safe for concurrent use.
package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"docstore/internal/ctxtime"
	"docstore/internal/simulate/chance"
	"docstore/internal/vfs"
	"docstore/queue/bucket"
)

// Times of a request.
const (
	fastest = 5 * time.Millisecond
	slowest = 40 * time.Millisecond
)

var (
	errAway        = errors.New("store: connection refused")
	errUnreachable = errors.New("store: no route to host")
	errFailed      = errors.New("store: internal error")
	errLost        = errors.New("store: connection reset")
	errBusy        = errors.New("store: slow down")
)

// Store is an object store.
type Store struct {
	chance *chance.Chance
	dir    *bucket.Dir

	mu struct {
		sync.Mutex
		away, hanging int
		failing       []*rates
		slow          time.Duration
		requests      map[string]int // by operation
	}
}

// rates are probabilities of failures.
type rates struct{ fail, lose, busy float64 }

// New returns an empty store.
func New(c *chance.Chance) (*Store, error) {
	mem := vfs.NewMem()
	if err := vfs.MakeDir(mem, "/bucket"); err != nil {
		return nil, err
	}
	dir, err := bucket.OpenDir(mem, "/bucket")
	if err != nil {
		return nil, err
	}
	s := &Store{chance: c.Sub("store"), dir: dir}
	s.mu.requests = map[string]int{}
	return s, nil
}

// Objects is the bucket without latency and faults, for those who examine it.
func (s *Store) Objects() bucket.Bucket { return s.dir }

// For returns the bucket as a host sees it. reachable reports whether the host has a network.
func (s *Store) For(host string, reachable func() bool) bucket.Bucket {
	return bucket.NewFault(s.dir, func(ctx context.Context, operation, name string) *bucket.Failure {
		draw := s.chance.Next(host + " " + operation)
		s.mu.Lock()
		s.mu.requests[operation]++
		away, hanging, slow := s.mu.away > 0, s.mu.hanging > 0, s.mu.slow
		var sum rates
		for _, r := range s.mu.failing {
			sum.fail, sum.lose, sum.busy = max(sum.fail, r.fail), max(sum.lose, r.lose), max(sum.busy, r.busy)
		}
		s.mu.Unlock()
		if hanging || !reachable() {
			<-ctx.Done()
			return &bucket.Failure{Err: errUnreachable}
		}
		if !ctxtime.Sleep(ctx, slow+draw.Duration(fastest, slowest)) {
			return &bucket.Failure{Err: ctx.Err()}
		}
		switch {
		case away:
			return &bucket.Failure{Err: errAway}
		case draw.Bool(sum.fail):
			return &bucket.Failure{Err: errFailed}
		case draw.Bool(sum.busy):
			return &bucket.Failure{Err: errBusy, SlowDown: true}
		case draw.Bool(sum.lose):
			return &bucket.Failure{Err: errLost, Executed: true, Bytes: int64(draw.Int(4096))}
		}
		return nil
	})
}

// Requests returns the number of requests of an operation.
func (s *Store) Requests(operation string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.requests[operation]
}

// Away refuses all requests until end is called.
func (s *Store) Away() (end func()) { return s.count(&s.mu.away) }

// Hang answers no request until end is called.
func (s *Store) Hang() (end func()) { return s.count(&s.mu.hanging) }

func (s *Store) count(n *int) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*n++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		*n--
	}
}

// Fail makes requests fail with these probabilities until end is called: before they are executed,
// after it, or because there are too many.
func (s *Store) Fail(before, after, busy float64) (end func()) {
	r := &rates{before, after, busy}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.failing = append(s.mu.failing, r)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		*r = rates{}
	}
}

// Slow delays each request until end is called.
func (s *Store) Slow(delay time.Duration) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.slow += delay
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.slow -= delay
	}
}
