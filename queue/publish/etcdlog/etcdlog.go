package etcdlog

import (
	"context"
	"fmt"
	"net"
	"os" //nolint:depguard // for the name of this process, not for files
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/errors"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"docstore/boxcarrpc/discovery/etcd"
	"docstore/internal/ctxtime"
	"docstore/queue/publish"
)

// Defaults of Options.
const (
	DefaultPrefix  = "docstore"
	DefaultLease   = 10 * time.Second
	DefaultTimeout = 10 * time.Second

	// callTimeout bounds one attempt of a request.
	callTimeout   = 3 * time.Second
	notifyTimeout = time.Second
	// retryPause is the pause between attempts, and between looks at another's claim.
	retryPause = 100 * time.Millisecond
)

// Options configure an Arbiter. Nil and zero values are the defaults.
type Options struct {
	// Lease is the time after which a publisher that does not renew its claim loses it, in
	// whole seconds. The default is DefaultLease.
	Lease time.Duration
	// Timeout bounds a request with all its attempts. The default is DefaultTimeout.
	Timeout time.Duration
	// Dial connects to an endpoint. The default is that of gRPC.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Observe is that of etcd.Options. The default is none.
	Observe func(error)
}

// Arbiter is a publish.Arbiter. It is safe for concurrent use.
type Arbiter struct {
	endpoints string
	prefix    string
	lease     time.Duration
	timeout   time.Duration
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	observe   func(error)

	mu struct {
		sync.Mutex
		client *clientv3.Client // nil before the first use
		closed bool
	}
}

var _ publish.Arbiter = (*Arbiter)(nil)

// Open returns an Arbiter in the etcd at HOST:PORT[,HOST:PORT...], with DefaultPrefix, or at
// a target of package boxcarrpc/discovery/etcd, etcd://HOST:PORT[,...]/PREFIX[?OPTION&...].
// It does not wait for etcd.
func Open(endpoints string, opts *Options) (*Arbiter, error) {
	options := Options{Lease: DefaultLease, Timeout: DefaultTimeout}
	if opts != nil && opts.Lease > 0 {
		options.Lease = opts.Lease
	}
	if opts != nil && opts.Timeout > 0 {
		options.Timeout = opts.Timeout
	}
	if opts != nil {
		options.Dial, options.Observe = opts.Dial, opts.Observe
	}
	prefix, err := etcd.Prefix(target(endpoints))
	if err != nil {
		return nil, err
	}
	return &Arbiter{endpoints: endpoints, prefix: prefix, lease: options.Lease, timeout: options.Timeout, dial: options.Dial, observe: options.Observe}, nil
}

// connect returns the connection to etcd. The first call makes it; with a user it waits for
// the authentication.
func (a *Arbiter) connect() (*clientv3.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.closed {
		return nil, errors.New("etcdlog: the arbiter is closed")
	}
	if a.mu.client == nil {
		client, err := etcd.Connect(target(a.endpoints), &etcd.Options{CallTimeout: callTimeout, Dial: a.dial, Observe: a.observe})
		if err != nil {
			return nil, err
		}
		a.mu.client = client
	}
	return a.mu.client, nil
}

// Check returns an error if the endpoints are invalid.
func Check(endpoints string) error { return etcd.Check(target(endpoints)) }

func target(endpoints string) string {
	if strings.Contains(endpoints, "://") {
		return endpoints
	}
	return "etcd://" + endpoints + "/" + DefaultPrefix
}

// Close closes the connection. It is idempotent.
func (a *Arbiter) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	client := a.mu.client
	a.mu.client, a.mu.closed = nil, true
	if client == nil {
		return nil
	}
	return client.Close()
}

func (a *Arbiter) commitKey(key string) string { return a.prefix + "/" + key + "/commit" }
func (a *Arbiter) ownerKey(key string) string  { return a.prefix + "/" + key + "/owner" }
func (a *Arbiter) numberKey(key string) string { return a.prefix + "/" + key + "/number" }

// try repeats a request that fails for a temporary reason. A request may have been executed
// although an attempt failed.
func (a *Arbiter) try(ctx context.Context, request func(context.Context, *clientv3.Client) error) error {
	limited, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	for {
		attempt, cancel := context.WithTimeout(limited, callTimeout)
		client, err := a.connect()
		if err == nil {
			err = request(attempt, client)
		}
		cancel()
		if err == nil {
			return nil
		}
		switch codeOf(err) {
		case codes.NotFound: // the lease
			return err
		case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument, codes.FailedPrecondition:
			return errors.Wrapf(err, "etcd at %s refused the request: check the user and its permissions", a.endpoints)
		}
		if !ctxtime.Sleep(limited, retryPause) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return errors.Wrapf(err, "etcd at %s did not answer within %s: check --etcd", a.endpoints, a.timeout)
		}
	}
}

// codeOf returns the code of an error of etcd's client, which has its own type.
func codeOf(err error) codes.Code {
	if e := (rpctypes.EtcdError{}); errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}

// Get implements publish.Arbiter.
func (a *Arbiter) Get(ctx context.Context, key string) (value []byte, version int64, err error) {
	err = a.try(ctx, func(ctx context.Context, client *clientv3.Client) error {
		answer, err := client.Get(ctx, a.commitKey(key))
		if err == nil && len(answer.Kvs) > 0 {
			value, version = answer.Kvs[0].Value, answer.Kvs[0].ModRevision
		}
		return err
	})
	return value, version, err
}

// Swap implements publish.Arbiter. A second attempt after one that was executed does not
// swap.
func (a *Arbiter) Swap(ctx context.Context, key string, version int64, value []byte, fence int64) (swapped bool, err error) {
	conditions := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(a.commitKey(key)), "=", version)}
	if fence != 0 {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(a.ownerKey(key)), "=", fence))
	}
	err = a.try(ctx, func(ctx context.Context, client *clientv3.Client) error {
		answer, err := client.Txn(ctx).If(conditions...).Then(clientv3.OpPut(a.commitKey(key), string(value))).Commit()
		swapped = err == nil && answer.Succeeded
		return err
	})
	return swapped, err
}

// Remove implements publish.Arbiter.
func (a *Arbiter) Remove(ctx context.Context, key string) error {
	return a.try(ctx, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Delete(ctx, a.commitKey(key))
		return err
	})
}

// Claim implements publish.Arbiter.
func (a *Arbiter) Claim(ctx context.Context, key string, patience time.Duration) (fence int64, release func(), err error) {
	for {
		fence, release, err = a.claim(ctx, key, patience)
		// The process may have been stopped for longer than the lease.
		if codeOf(err) != codes.NotFound {
			return fence, release, err
		}
	}
}

func (a *Arbiter) claim(ctx context.Context, key string, patience time.Duration) (fence int64, release func(), err error) {
	var lease clientv3.LeaseID
	err = a.try(ctx, func(ctx context.Context, client *clientv3.Client) error {
		answer, err := client.Grant(ctx, int64((a.lease+time.Second-1)/time.Second))
		if err == nil {
			lease = answer.ID
		}
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	client, err := a.connect()
	if err != nil {
		return 0, nil, err
	}
	renewing, stop := context.WithCancel(context.Background())
	// If the channel of responses is full, the client drops responses.
	if _, err = client.KeepAlive(renewing, lease); err != nil {
		stop()
		return 0, nil, err
	}
	release = sync.OnceFunc(func() {
		stop()
		// Without an answer the lease ends by itself.
		limited, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		_, _ = client.Revoke(limited, lease)
	})
	fence, err = a.own(ctx, key, lease, patience)
	if err != nil {
		release()
		return 0, nil, err
	}
	return fence, release, nil
}

// own creates the owner's key with a lease. The error of an ended lease has the code
// NotFound.
func (a *Arbiter) own(ctx context.Context, key string, lease clientv3.LeaseID, patience time.Duration) (fence int64, err error) {
	deadline := time.Now().Add(patience)
	for {
		holder := ""
		err := a.try(ctx, func(ctx context.Context, client *clientv3.Client) error {
			answer, err := client.Txn(ctx).
				If(clientv3.Compare(clientv3.CreateRevision(a.ownerKey(key)), "=", 0)).
				Then(clientv3.OpPut(a.ownerKey(key), describeProcess(), clientv3.WithLease(lease))).
				Else(clientv3.OpGet(a.ownerKey(key))).Commit()
			if err != nil {
				return err
			}
			if answer.Succeeded {
				fence = answer.Header.Revision
				return nil
			}
			// An earlier attempt may have created it.
			there := answer.Responses[0].GetResponseRange().Kvs[0]
			if holder = string(there.Value); clientv3.LeaseID(there.Lease) == lease {
				fence = there.CreateRevision
			}
			return nil
		})
		if err != nil || fence != 0 {
			return fence, err
		}
		if time.Now().After(deadline) {
			return 0, publish.Refused("another publisher, %s, holds the collection: stop it; after a crash, its lease of %s ends", holder, a.lease)
		}
		if !ctxtime.Sleep(ctx, retryPause) {
			return 0, ctx.Err()
		}
	}
}

// describeProcess returns the host and the id of this process, for people.
func describeProcess() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("process %d on %s", os.Getpid(), host)
}

// Notify implements publish.Arbiter.
func (a *Arbiter) Notify(ctx context.Context, key string, number uint64) error {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	client, err := a.connect()
	if err == nil {
		_, err = client.Put(ctx, a.numberKey(key), strconv.FormatUint(number, 10))
	}
	return err
}

// Wait implements publish.Arbiter. It ends with an error if this etcd loses its leader.
func (a *Arbiter) Wait(ctx context.Context, key string, after uint64) (uint64, error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	client, err := a.connect()
	if err != nil {
		return 0, err
	}
	first, cancelFirst := context.WithTimeout(ctx, notifyTimeout)
	answer, err := client.Get(first, a.numberKey(key))
	cancelFirst()
	if err != nil {
		return 0, err
	}
	for _, kv := range answer.Kvs {
		if number, above := parseNumber(kv.Value, after); above {
			return number, nil
		}
	}
	for response := range client.Watch(ctx, a.numberKey(key), clientv3.WithRev(answer.Header.Revision+1)) {
		if err := response.Err(); err != nil {
			return 0, err
		}
		for _, event := range response.Events {
			if number, above := parseNumber(event.Kv.Value, after); above {
				return number, nil
			}
		}
	}
	return 0, errors.CombineErrors(ctx.Err(), errors.New("etcd ended the watch"))
}

// parseNumber returns the number of Notify, and whether it is above another one.
func parseNumber(value []byte, after uint64) (uint64, bool) {
	number, err := strconv.ParseUint(string(value), 10, 64)
	return number, err == nil && number > after
}
