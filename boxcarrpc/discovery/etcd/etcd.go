package etcd

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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
	// marginPart: the default margin is this part of the TTL.
	marginPart = 5
)

// MinTTL is the shortest TTL. etcd's own least one depends on its election timeout,
// and is 2 s by default; it gives that instead of a shorter one.
const MinTTL = time.Second

// Options are those of a Registry. The zero value of each field, and a nil
// *Options, mean the default.
type Options struct {
	// TTL is how long a server that has died is still among the servers, in whole
	// seconds. The default is 10 s.
	TTL time.Duration
	// Margin is by how much clocks may run apart within a TTL; at most a third of
	// it. The default is a fifth.
	Margin time.Duration
	// CallTimeout bounds a request to etcd. The default is 3 s.
	CallTimeout time.Duration
	// CountFrontends has sources tell how many clients have numbers, too, which only
	// ringsteady with FrontendScaling asks for: every client then hears of every other.
	CountFrontends bool
	// TLS is how etcd is spoken to. The default is plain text.
	TLS *tls.Config
	// User and Password are shown to etcd. The default shows nothing.
	User, Password string
	// Logger gets numbers that are gained and lost. The default discards it.
	Logger *slog.Logger
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
		errs = append(errs, fmt.Errorf("etcd: a TTL of %s: it must be whole seconds, at least %s", r.TTL, MinTTL))
	}
	if r.Margin < 0 || r.Margin > r.TTL/3 {
		errs = append(errs, fmt.Errorf("etcd: a margin of %s: it must be at most a third of the TTL, %s", r.Margin, r.TTL))
	}
	if (r.User == "") != (r.Password == "") {
		errs = append(errs, errors.New("etcd: a user and a password go together"))
	}
	if r.CallTimeout < 0 {
		errs = append(errs, fmt.Errorf("etcd: a call timeout of %s: it must be over 0", r.CallTimeout))
	}
	return r, errors.Join(errs...)
}

// A Registry is a set of servers, and of clients, under a prefix of etcd's keys.
type Registry struct {
	options   Options
	prefix    string // without a slash at its end
	endpoints []string

	ctx     context.Context // of the numbers
	cancel  context.CancelFunc
	holding sync.WaitGroup
	closing sync.Once

	mu struct {
		sync.Mutex
		client *clientv3.Client // nil until it is needed
	}
}

// Open makes a registry of a target of the form
//
//	etcd://HOST:PORT[,HOST:PORT...]/PREFIX[?OPTION&...]
//
// whose options go before those of opts, which may be nil:
//
//	tls=true            TLS, by the system's authorities
//	ca=FILE             TLS, and etcd must have a certificate of these authorities
//	cert=FILE&key=FILE  TLS, and this is the certificate to show
//	user=NAME&password-file=FILE
//
// It reads the files, and does not wait for etcd. A certificate that was replaced is
// read again; the other files are not.
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

// etcd returns the connection, which the first call makes: with a user that waits
// until etcd has let it in.
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
		DialOptions:          []grpc.DialOption{grpc.WithConnectParams(r.reconnecting())},
		TLS:                  r.options.TLS,
		Username:             r.options.User,
		Password:             r.options.Password,
		Logger:               zap.NewNop(), // what matters comes as an error
	})
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	r.mu.client = client
	return client, nil
}

// reconnecting is how often a lost connection is tried. An etcd that comes back gives
// each lease its TTL anew: after gRPC's own pauses, of up to two minutes, all servers
// would leave the set together.
func (r *Registry) reconnecting() grpc.ConnectParams {
	pauses := backoff.DefaultConfig
	pauses.MaxDelay = r.options.TTL / renewals / 2
	pauses.BaseDelay = min(pauses.BaseDelay, pauses.MaxDelay)
	return grpc.ConnectParams{Backoff: pauses, MinConnectTimeout: r.options.CallTimeout}
}

// Close gives back all numbers at once, and ends the connection to etcd.
func (r *Registry) Close() (err error) {
	r.closing.Do(func() {
		r.cancel()
		r.holding.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.mu.client != nil {
			err = r.mu.client.Close()
		}
	})
	return err
}

// call bounds a request.
func (r *Registry) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.options.CallTimeout)
}

// A kind is one of the two that have numbers of their own.
type kind string

const (
	backends  kind = "backends"
	frontends kind = "frontends"
)

// watched are the kinds that sources tell of.
func (r *Registry) watched() []kind {
	if r.options.CountFrontends {
		return []kind{backends, frontends}
	}
	return []kind{backends}
}

func (r *Registry) entries(k kind) string { return r.prefix + "/" + string(k) + "/" }
func (r *Registry) claims(k kind) string  { return r.prefix + "/claims/" + string(k) + "/" }
func (r *Registry) line(k kind) string    { return r.prefix + "/line/" + string(k) + "/" }

// numberOf is the number at the end of a key.
func numberOf(key []byte, prefix string) (number int, ok bool) {
	text := strings.TrimPrefix(string(key), prefix)
	number, err := strconv.Atoi(text)
	return number, err == nil && number >= 0 && number <= discovery.MaxNumber && strconv.Itoa(number) == text
}

// An entry is what is told of a holder.
type entry struct {
	Address string  `json:"address"`
	Weight  float64 `json:"weight,omitempty"`
}

func (e entry) encode() string {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // Backend has looked at the weight
	}
	return string(text)
}
