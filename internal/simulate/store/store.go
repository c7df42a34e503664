package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"docstore/internal/ctxtime"
	"docstore/internal/simulate/chance"
	"docstore/internal/vfs"
	"docstore/queue/bucket"
)

// root is the directory of the objects.
const root = "/bucket"

// Times of a request, and of a late Put after its begin.
const (
	fastest   = 5 * time.Millisecond
	slowest   = 40 * time.Millisecond
	firstLate = time.Second
	lastLate  = 20 * time.Second
)

var (
	errAway   = errors.New("store: connection refused")
	errFailed = errors.New("store: internal error")
	errLost   = errors.New("store: connection reset")
	errBusy   = errors.New("store: slow down")
)

// Store is an object store.
type Store struct {
	chance *chance.Chance
	files  *vfs.Mem
	dir    *bucket.Dir

	mu struct {
		sync.Mutex
		faults   []*fault
		requests map[string]int       // by operation
		failures map[string]*failures // by host
	}
}

// fault is the effect of a fault on requests, or of several together.
type fault struct {
	operations             []string // empty: all
	away, hanging          bool
	refused                error
	slow                   time.Duration
	fail, lose, busy, late float64 // probabilities
	wrong                  float64
}

// failures counts the failed requests of a host, without those that it cancelled, in windows of
// FailuresWindow.
type failures struct {
	began     time.Time // of the last window
	now, most int
}

// FailuresWindow is the time for which Failures counts.
const FailuresWindow = 10 * time.Second

// New returns an empty store.
func New(c *chance.Chance) (*Store, error) {
	mem := vfs.NewMem()
	if err := vfs.MakeDir(mem, root); err != nil {
		return nil, err
	}
	dir, err := bucket.OpenDir(mem, root)
	if err != nil {
		return nil, err
	}
	s := &Store{chance: c.Sub("store"), files: mem, dir: dir}
	s.mu.requests, s.mu.failures = map[string]int{}, map[string]*failures{}
	return s, nil
}

// FlipBit inverts a bit of an object for good. The name is empty if there is no object with bytes.
func (s *Store) FlipBit(ctx context.Context) (name string, err error) {
	var objects []bucket.Info
	for object, err := range s.dir.List(ctx, "", "") {
		if err != nil {
			return "", err
		}
		if object.Size > 0 {
			objects = append(objects, object)
		}
	}
	if len(objects) == 0 {
		return "", nil
	}
	draw := s.chance.Next("flip")
	object := objects[draw.Int(len(objects))]
	return object.Name, s.files.FlipBit(path.Join(root, object.Name), int64(draw.Int(int(object.Size))), uint8(draw.Int(8)))
}

// Objects is the bucket without latency and faults, for those who examine it.
func (s *Store) Objects() bucket.Bucket { return s.dir }

// For returns the bucket as a host sees it. reachable reports whether the host has a network.
func (s *Store) For(host string, reachable func() bool) bucket.Bucket {
	v := &view{store: s, host: host, reachable: reachable}
	v.Fault = bucket.NewFault(s.dir, v.before)
	return v
}

// view is the bucket as a host sees it.
type view struct {
	*bucket.Fault
	store     *Store
	host      string
	reachable func() bool
}

// before is called before each request.
func (v *view) before(ctx context.Context, operation, name string) *bucket.Failure {
	failure := v.fail(ctx, operation, name)
	if failure != nil && ctx.Err() == nil {
		v.store.countFailure(v.host)
	}
	return failure
}

// fail returns how a request fails; nil: it does not.
func (v *view) fail(ctx context.Context, operation, name string) *bucket.Failure {
	s := v.store
	draw := s.chance.Next(v.host + " " + operation + " " + name)
	f := s.request(operation)
	if f.hanging || !v.reachable() {
		<-ctx.Done()
		return &bucket.Failure{Err: ctx.Err()}
	}
	if !ctxtime.Sleep(ctx, f.slow+draw.Duration(fastest, slowest)) {
		return &bucket.Failure{Err: ctx.Err(), Executed: operation != "get" && operation != "list" && draw.Bool(0.5)}
	}
	switch {
	case f.away:
		return &bucket.Failure{Err: errAway}
	case f.refused != nil:
		return &bucket.Failure{Err: f.refused}
	case draw.Bool(f.fail):
		return &bucket.Failure{Err: errFailed}
	case draw.Bool(f.busy):
		return &bucket.Failure{Err: errBusy, SlowDown: true}
	case draw.Bool(f.lose):
		return &bucket.Failure{Err: errLost, Executed: true, Part: s.part(operation, name, &draw), Stalls: draw.Bool(0.2)}
	case operation == "get" && isVerified(name) && draw.Bool(f.wrong):
		return &bucket.Failure{Wrong: true, Part: max(0, s.part(operation, name, &draw)-1)}
	}
	return nil
}

// isVerified reports whether readers verify an object: its name states the digest of its content.
func isVerified(name string) bool {
	return strings.HasPrefix(name, "file/") || strings.HasPrefix(name, "manifest/")
}

// part draws how much of a response arrives.
func (s *Store) part(operation, name string, draw *chance.Draw) int64 {
	if operation != "get" {
		return int64(draw.Int(10)) // objects of a list
	}
	info, err := s.dir.Head(context.Background(), name)
	if err != nil {
		return 0
	}
	return int64(draw.Int(int(info.Size) + 1))
}

// Put implements bucket.Bucket.
func (v *view) Put(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	s := v.store
	draw := s.chance.Next("late " + v.host + " " + name)
	if f := s.effect("put"); !draw.Bool(f.late) || f.hanging || f.away || !v.reachable() {
		return v.Fault.Put(ctx, name, body, size)
	}
	content := make([]byte, size)
	if n, err := body.ReadAt(content, 0); n < len(content) {
		return err
	}
	time.AfterFunc(draw.Duration(firstLate, lastLate), func() {
		_ = s.dir.Put(context.Background(), name, bytes.NewReader(content), size) // its response is lost
	})
	s.request("put")
	lost := bucket.NewFault(s.dir, func(ctx context.Context, _, _ string) *bucket.Failure {
		if !ctxtime.Sleep(ctx, draw.Duration(fastest, slowest)) {
			return &bucket.Failure{Err: ctx.Err()}
		}
		return &bucket.Failure{Err: errLost}
	})
	return lost.Put(ctx, name, body, size)
}

// request counts a request and returns the effect of all faults on it.
func (s *Store) request(operation string) fault {
	s.mu.Lock()
	s.mu.requests[operation]++
	s.mu.Unlock()
	return s.effect(operation)
}

// effect returns the effect of all faults on an operation.
func (s *Store) effect(operation string) (sum fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.mu.faults {
		if len(f.operations) > 0 && !slices.Contains(f.operations, operation) {
			continue
		}
		sum.away, sum.hanging = sum.away || f.away, sum.hanging || f.hanging
		if f.refused != nil {
			sum.refused = f.refused
		}
		sum.slow += f.slow
		sum.fail, sum.lose, sum.busy, sum.late = max(sum.fail, f.fail), max(sum.lose, f.lose), max(sum.busy, f.busy), max(sum.late, f.late)
		sum.wrong = max(sum.wrong, f.wrong)
	}
	return sum
}

// Requests returns the number of requests of an operation.
func (s *Store) Requests(operation string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.requests[operation]
}

// countFailure counts a failed request of a host.
func (s *Store) countFailure(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.mu.failures[host]
	if f == nil {
		f = &failures{}
		s.mu.failures[host] = f
	}
	if now := time.Now(); now.Sub(f.began) >= FailuresWindow {
		f.began, f.now = now, 0
	}
	f.now++
	f.most = max(f.most, f.now)
}

// Failures returns the most requests of a host that failed within a FailuresWindow, without those that
// it cancelled.
func (s *Store) Failures(host string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.mu.failures[host]; f != nil {
		return f.most
	}
	return 0
}

// begin adds a fault.
func (s *Store) begin(added fault) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.faults = append(s.mu.faults, &added)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.faults = slices.DeleteFunc(s.mu.faults, func(f *fault) bool { return f == &added })
	}
}

// Away refuses all connections until end is called.
func (s *Store) Away() (end func()) { return s.begin(fault{away: true}) }

// Hang answers no request that begins until end is called.
func (s *Store) Hang() (end func()) { return s.begin(fault{hanging: true}) }

// Refuse answers all requests with a permanent error until end is called: bucket.ErrDenied,
// ErrNoBucket or ErrClockSkew.
func (s *Store) Refuse(err error) (end func()) { return s.begin(fault{refused: err}) }

// Fail makes requests fail with these probabilities until end is called: before they are executed,
// after it, or because there are too many. It affects some operations ("get", "put", "head",
// "list", "delete"), or all if none is named.
func (s *Store) Fail(before, after, busy float64, operations ...string) (end func()) {
	return s.begin(fault{operations: operations, fail: before, lose: after, busy: busy})
}

// LatePuts makes Puts fail with a probability until end is called, and executes them 1 to
// 20 s later: after the client has repeated the Put, or given up.
func (s *Store) LatePuts(probability float64) (end func()) { return s.begin(fault{late: probability}) }

// Lie inverts a bit of the response to a Get with a probability until end is called. Only objects
// whose readers verify a digest are affected: files and manifests.
func (s *Store) Lie(probability float64) (end func()) { return s.begin(fault{wrong: probability}) }

// Slow delays each request until end is called.
func (s *Store) Slow(delay time.Duration) (end func()) { return s.begin(fault{slow: delay}) }
