package etcd

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"docstore/boxcarrpc/discovery"
)

// Defaults of Options.
const (
	DefaultTTL         = 10 * time.Second
	DefaultCallTimeout = 3 * time.Second
	// marginPart is the ratio of TTL to the default margin.
	marginPart = 5
)

// MinTTL is the minimum TTL. etcd's own minimum depends on its election timeout, 2 s by
// default; etcd raises a shorter TTL to it.
const MinTTL = time.Second

// Options are the options of a Registry. The zero value of each field, and a nil
// *Options, mean the default.
type Options struct {
	// TTL is the time until a dead server leaves the set, in whole seconds. The
	// default is 10 s.
	TTL time.Duration
	// Margin is the tolerated clock drift within a TTL, at most a third of the TTL.
	// The default is a fifth.
	Margin time.Duration
	// CallTimeout limits a request to etcd. The default is 3 s.
	CallTimeout time.Duration
	// CountFrontends makes sources report the number of clients. Only ringsteady with
	// FrontendScaling needs it; every client then watches all others.
	CountFrontends bool
	// Zone is the zone of the clients that the registry numbers: each zone numbers its
	// clients from 0, for subsets by zone. The default is the zone without a name.
	Zone string
	// TLS is the configuration of connections to etcd. The default is plain text.
	TLS *tls.Config
	// User and Password authenticate to etcd. The default is none.
	User, Password string
	// Logger gets gained and lost numbers. The default discards them.
	Logger *slog.Logger
	// Dial connects to an endpoint. The default is that of gRPC.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Observe gets the outcome of each request and of each message of a watch or a lease:
	// nil if etcd has answered, or why it has not. The default is none.
	Observe func(error)
}

func (o *Options) withDefaults() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	if r.TTL == 0 {
		r.TTL = DefaultTTL
	}
	if r.Margin == 0 {
		r.Margin = r.TTL / marginPart
	}
	if r.CallTimeout == 0 {
		r.CallTimeout = DefaultCallTimeout
	}
	if r.Logger == nil {
		r.Logger = slog.New(slog.DiscardHandler)
	}
	var errs []error
	if r.TTL < MinTTL || r.TTL%time.Second != 0 {
		errs = append(errs, fmt.Errorf("etcd: TTL %s: must be whole seconds, at least %s", r.TTL, MinTTL))
	}
	if r.Margin < 0 || r.Margin > r.TTL/3 {
		errs = append(errs, fmt.Errorf("etcd: margin %s: must be from 0 to a third of the TTL, %s", r.Margin, r.TTL))
	}
	if (r.User == "") != (r.Password == "") {
		errs = append(errs, errors.New("etcd: user without password, or password without user: set both or neither"))
	}
	if r.CallTimeout < 0 {
		errs = append(errs, fmt.Errorf("etcd: call timeout %s: must be above 0", r.CallTimeout))
	}
	if err := discovery.CheckZone(r.Zone); err != nil {
		errs = append(errs, fmt.Errorf("etcd: %w", err))
	}
	return r, errors.Join(errs...)
}

// A Registry is a set of servers and clients under a prefix of etcd's keys.
type Registry struct {
	options   Options
	prefix    string // without a trailing slash
	endpoints []string
	shared    bool // the caller of New owns the connection

	ctx     context.Context // of the numbers
	cancel  context.CancelFunc
	holding sync.WaitGroup // goroutines of the numbers
	closing sync.Once

	mu struct {
		sync.Mutex
		client *clientv3.Client // nil before the first use
	}
}

// Open returns the registry of a target:
//
//	etcd://HOST:PORT[,HOST:PORT...]/PREFIX[?OPTION&...]
//
// The options in a target override those of opts, which may be nil:
//
//	tls=true            TLS with the system's authorities
//	ca=FILE             TLS with these authorities
//	cert=FILE&key=FILE  TLS with this client certificate
//	user=NAME&password-file=FILE
//
// It reads the files and does not wait for etcd. The certificate is read again when its
// file changes; the other files are not.
func Open(text string, opts *Options) (*Registry, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	t, err := parse(text)
	if err != nil {
		return nil, err
	}
	if err := t.apply(&o); err != nil {
		return nil, err
	}
	r := &Registry{options: o, prefix: t.prefix, endpoints: t.endpoints}
	if o.TLS != nil {
		for i, endpoint := range r.endpoints {
			r.endpoints[i] = "https://" + endpoint
		}
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

// New returns the registry with a key prefix in the etcd of a client, so that many
// registries share a connection. The caller closes the client after the registry. The
// options of the connection are those of the client.
func New(client *clientv3.Client, prefix string, opts *Options) (*Registry, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if prefix = strings.Trim(prefix, "/"); prefix == "" {
		return nil, errors.New("etcd: no key prefix")
	}
	r := &Registry{options: o, prefix: prefix, shared: true}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.mu.client = client
	return r, nil
}

// Connect returns a client for the etcd of a target. The caller closes it. With a user it
// waits for the authentication. Options other than CallTimeout, TLS, User, Password, Dial, Observe,
// and TTL, which bounds the pauses between reconnections, are not used.
func Connect(text string, opts *Options) (*clientv3.Client, error) {
	r, err := Open(text, opts)
	if err != nil {
		return nil, err
	}
	return r.etcd()
}

// Prefix returns the key prefix of a target, without a trailing slash.
func Prefix(text string) (string, error) {
	t, err := parse(text)
	return t.prefix, err
}

// etcd returns the connection to etcd. The first call makes it; with a user it waits for
// the authentication.
func (r *Registry) etcd() (*clientv3.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.mu.client != nil:
		return r.mu.client, nil
	case r.ctx.Err() != nil:
		return nil, errors.New("etcd: the registry is closed")
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            r.endpoints,
		DialTimeout:          r.options.CallTimeout,
		DialKeepAliveTime:    r.options.TTL,
		DialKeepAliveTimeout: r.options.CallTimeout,
		DialOptions:          r.dialOptions(),
		TLS:                  r.options.TLS,
		Username:             r.options.User,
		Password:             r.options.Password,
		Logger:               zap.NewNop(), // failures are returned as errors
	})
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	r.mu.client = client
	return client, nil
}

func (r *Registry) dialOptions() []grpc.DialOption {
	options := []grpc.DialOption{grpc.WithConnectParams(r.reconnecting())}
	if observe := r.options.Observe; observe != nil {
		options = append(options, observed(observe)...)
	}
	if dial := r.options.Dial; dial != nil {
		options = append(options, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) }))
	}
	return options
}

// reconnecting returns the backoff of reconnections. An etcd that restarts grants each
// lease one more TTL. With gRPC's default pauses of up to two minutes all servers would
// leave the set together.
func (r *Registry) reconnecting() grpc.ConnectParams {
	pauses := backoff.DefaultConfig
	pauses.MaxDelay = r.options.TTL / renewals / 2
	pauses.BaseDelay = min(pauses.BaseDelay, pauses.MaxDelay)
	return grpc.ConnectParams{Backoff: pauses, MinConnectTimeout: r.options.CallTimeout}
}

// Close releases all numbers and closes the connection to etcd, unless that is the client
// of New.
func (r *Registry) Close() (err error) {
	r.closing.Do(func() {
		r.cancel()
		r.holding.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.mu.client != nil && !r.shared {
			err = r.mu.client.Close()
		}
	})
	return err
}

// call returns a context with the timeout of a request.
func (r *Registry) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.options.CallTimeout)
}

// A kind is a separate sequence of numbers.
type kind string

const (
	backends  kind = "backends"
	frontends kind = "frontends"
)

// frontends returns the kind of the clients of the registry's zone.
func (r *Registry) frontends() kind {
	if r.options.Zone == "" {
		return frontends
	}
	return frontends + "-of-" + kind(r.options.Zone)
}

// watched returns the kinds that sources watch.
func (r *Registry) watched() []kind {
	if r.options.CountFrontends {
		return []kind{backends, r.frontends()}
	}
	return []kind{backends}
}

func (r *Registry) entries(k kind) string { return r.prefix + "/" + string(k) + "/" }
func (r *Registry) claims(k kind) string  { return r.prefix + "/claims/" + string(k) + "/" }
func (r *Registry) line(k kind) string    { return r.prefix + "/line/" + string(k) + "/" }

// numberOf returns the number at the end of a key.
func numberOf(key []byte, prefix string) (number int, ok bool) {
	text := strings.TrimPrefix(string(key), prefix)
	number, err := strconv.Atoi(text)
	return number, err == nil && number >= 0 && number <= discovery.MaxNumber && strconv.Itoa(number) == text
}

// An entry is the public value of a number.
type entry struct {
	Address string  `json:"address"`
	Weight  float64 `json:"weight,omitempty"`
	Zone    string  `json:"zone,omitempty"`
}

func (e entry) encode() string {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // Backend checks the weight
	}
	return string(text)
}
