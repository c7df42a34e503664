package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	"docstore/boxcarrpc"
	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/livepage"
	"docstore/docservice/collection"
	"docstore/docservice/follow"
	"docstore/docservice/gateway"
	"docstore/docservice/peers"
	"docstore/lsm"
	"docstore/queue/stored"
)

// daemonOptions configure a daemon.
type daemonOptions struct {
	collectionFlags []string         // as given
	collections     []collectionFlag // parsed
	quiet           bool
	limits          limits
	dataDir         string
	boxcar          string
	http            httpFlags
	grpc            string // empty: none
	memory          memoryFlag
	grace           time.Duration
	quarantine      bool
	scrubInterval   time.Duration // 0: never
	scrubRate       cli.Size      // bytes a second
	maxStaleness    time.Duration // 0: no limit
	memcached       []string      // addresses; empty: none
	security        security
	tracing         tracing
	registration    registration
	buckets         bucketOptions
	peers           peerOptions
	columns         columnOptions
	audit           cli.AuditLog
}

// daemon owns all parts of a running daemon: the collections, the listeners, and the lock
// of the data directory.
type daemon struct {
	env     *cli.Env
	options daemonOptions
	auth    *authenticator
	// tracing creates spans; nil: none.
	tracing *trace.TracerProvider
	lock    io.Closer
	cache   *collection.Cache // nil: none
	// followers fetch collections from object stores.
	followers followers
	fleets    fleets // for the fleet page
	columns   columns
	// gateway answers HTTP and gRPC: it passes on requests for shards of other columns.
	gateway   *gateway.Gateway
	disk      *follow.Disk  // limit of the data directory; nil: none
	downloads *rate.Limiter // nil: no limit
	files     *peers.Server // sends files to other servers
	peers     *peers.Client // fetches files from them; nil: there are none
	budget    *lsm.Budget   // of all collections
	// decoders caches the dictionaries of all collections, within the same memory.
	decoders *stored.DecoderCache
	// scrubSemaphore makes --scrub-rate apply to the scrubs of all collections together.
	scrubSemaphore chan struct{}
	// messages limits the bytes of requests and responses of all clients over all
	// protocols.
	messages       *boxcarrpc.Budget
	service        *collection.Service
	boxcar         *boxcarrpc.Server
	http           *http.Server
	boxcarListener net.Listener
	httpListener   *boundedListener
	grpc           *grpc.Server     // nil: none
	grpcListener   *boundedListener // nil: none
	// Open health streams over gRPC of authenticated and of unauthenticated clients. If no
	// credentials are required, all count as authenticated.
	watches, unauthenticatedWatches atomic.Int64

	settings atomic.Pointer[[]cli.Setting] // effective; nil: unknown
	grace    atomic.Int64                  // a time.Duration

	alive   context.Context // until the daemon is closed
	end     context.CancelFunc
	ending  atomic.Bool // set before the listeners close: /readyz answers 503
	serving sync.WaitGroup
	failed  chan struct{} // closed when a listener fails
	failure struct {
		sync.Once
		err error
	}
}

// startDaemon opens all parts and starts to serve. On error it closes what it opened.
func startDaemon(env *cli.Env, o daemonOptions) (_ *daemon, err error) {
	d := &daemon{env: env, options: o, service: collection.NewService(), failed: make(chan struct{}), scrubSemaphore: make(chan struct{}, 1)}
	d.gateway = gateway.New(d.service)
	d.grace.Store(int64(o.grace))
	d.alive, d.end = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if d.lock, err = lockData(o.dataDir); err != nil {
		return nil, err
	}
	if d.auth, err = o.security.open(env.Log); err != nil {
		return nil, err
	}
	if d.tracing, err = o.tracing.open(d.alive, env); err != nil {
		return nil, err
	}
	if d.boxcarListener, err = listen("--boxcar", o.boxcar); err != nil {
		return nil, err
	}
	memory := planForThisMachine(o.memory).memory
	shares := shareMemory(memory)
	d.messages, d.decoders, d.budget = boxcarrpc.NewBudget(shares.messages), stored.NewDecoderCache(shares.dictionaries), lsm.NewBudget(shares.index)
	listener, err := listen("--http", o.http.address)
	if err != nil {
		return nil, err
	}
	d.httpListener = d.newBoundedListener(listener, "http", httpMaxConns)
	if o.grpc != "" {
		if listener, err = listen("--grpc", o.grpc); err != nil {
			return nil, err
		}
		d.grpcListener = d.newBoundedListener(listener, "grpc", grpcMaxConns)
		d.grpcListener.grpc, d.grpcListener.requireAuth = true, o.security.requiresCredentials()
	}
	if len(o.memcached) > 0 {
		if d.cache, err = collection.OpenCache(o.memcached, env.Log); err != nil {
			return nil, err
		}
	}
	if err = d.openPeers(); err != nil {
		return nil, err
	}
	d.limitDownloads()
	for _, c := range o.collections {
		if err := d.addCollection(c); err != nil {
			return nil, err
		}
	}
	options := &boxcarrpc.ServerOptions{Budget: d.messages, Logger: env.Log, Prefetch: d.service.Prefetch()}
	if d.auth.access != nil {
		d.service.Authorize(d.authorize)
	}
	d.servePeers(options)
	metrics := newMetrics(d)
	d.auth.configure(options)
	options.Audit = d.auditDrain
	if err = o.limits.limit(options, memory); err != nil {
		return nil, err
	}
	d.traceBoxcar(options)
	d.boxcar = boxcarrpc.NewServer(metrics.timed("boxcar", d.service.Handle), metrics.boxcar.Instrument(options))
	metrics.boxcar.Watch(d.boxcar)
	d.drainUntilReady()
	if d.grpcListener != nil {
		d.grpc = newGRPCServer(d, d.traceHandler(metrics.timed("grpc", d.gateway.Handle)))
	}
	page := livepage.New(newReporter(d, metrics), o.http.lookUps(), env.Log)
	d.http = newHTTPServer(d, metrics, page, newFleetPage(d))
	d.serving.Go(func() { page.Run(d.alive) })
	d.serving.Go(func() { d.note(d.boxcar.Serve(d.boxcarListener), boxcarrpc.ErrServerClosed) })
	d.serving.Go(func() { d.note(d.serveHTTP(), http.ErrServerClosed) })
	if d.grpc != nil {
		d.serving.Go(d.serveGRPC)
	}
	return d, nil
}

// addCollection opens a collection and serves it.
func (d *daemon) addCollection(c collectionFlag) error {
	options := &collection.Options{
		Logger: d.env.Log, Budget: d.budget, Decoders: d.decoders, Quarantine: d.options.quarantine, Cache: d.cache,
		ScrubInterval: d.options.scrubInterval, ScrubBytesPerSecond: int64(d.options.scrubRate), ScrubSemaphore: d.scrubSemaphore,
		MaxStaleness: d.options.maxStaleness,
	}
	if options.ScrubInterval == 0 {
		options.ScrubInterval = -1 // 0 of the flag means never
	}
	if d.options.columns.column != "" {
		return d.addColumn(c, options)
	}
	if isURL(c.source) {
		return d.addFollower(c, options)
	}
	served, err := collection.Open(c.name, c.source, filepath.Join(d.options.dataDir, c.name), options)
	if err != nil {
		return err
	}
	d.service.Add(served)
	return nil
}

// serveHTTP serves until the server is closed.
func (d *daemon) serveHTTP() error {
	if d.http.TLSConfig != nil {
		return d.http.ServeTLS(d.httpListener, "", "")
	}
	return d.http.Serve(d.httpListener)
}

// listen opens a listener; flag is the name of its flag, for errors.
func listen(flag, address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s %s: the address is in use; stop the process that uses it, or choose another", flag, address)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, address, err)
	}
	return listener, nil
}

// note records the error of a listener, unless it is the expected one of a shutdown.
func (d *daemon) note(err, told error) {
	if !errors.Is(err, told) {
		d.failure.Do(func() {
			d.failure.err = err
			close(d.failed)
		})
	}
}

func (d *daemon) boxcarAddress() string { return d.boxcarListener.Addr().String() }
func (d *daemon) httpAddress() string   { return d.httpListener.Addr().String() }

// addresses returns the addresses of the listeners, for the log.
func (d *daemon) addresses() []any {
	r := []any{"boxcar", d.boxcarAddress(), "http", d.options.http.scheme(d.auth) + "://" + d.httpAddress()}
	if d.grpcListener != nil {
		r = append(r, "grpc", d.grpcListener.Addr().String())
	}
	return r
}

// collections returns the served collections ordered by name.
func (d *daemon) collections() []*collection.Collection { return d.service.Collections() }

// collection returns the collection of that name, nil if there is none.
func (d *daemon) collection(name string) *collection.Collection {
	for _, c := range d.collections() {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// drain makes clients use other servers.
func (d *daemon) drain() {
	d.ending.Store(true)
	d.boxcar.Drain()
}

// stop finishes the requests in flight within the grace period, and closes everything. It
// returns the error of a failed listener, if any.
func (d *daemon) stop(grace time.Duration) error {
	d.drain()
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	var draining sync.WaitGroup
	listeners := map[string]func(context.Context) error{"boxcar": d.boxcar.Shutdown, "http": d.http.Shutdown}
	if d.grpc != nil {
		listeners["grpc"] = d.shutdownGRPC
	}
	for listener, shutdown := range listeners {
		draining.Go(func() {
			if err := shutdown(ctx); err != nil {
				d.env.Log.Warn("requests in flight were aborted", "listener", listener, "error", err)
			}
		})
	}
	draining.Wait()
	err := d.close()
	select {
	case <-d.failed:
		return d.failure.err
	default:
		return err
	}
}

// close closes the open parts, in reverse order.
func (d *daemon) close() error {
	d.end()
	var errs []error
	if d.http != nil {
		errs = append(errs, d.http.Close(), d.boxcar.Close())
		if d.grpc != nil {
			d.grpc.Stop()
		}
		d.serving.Wait()
	} else {
		if d.boxcarListener != nil {
			errs = append(errs, d.boxcarListener.Close())
		}
		for _, listener := range []*boundedListener{d.httpListener, d.grpcListener} {
			if listener != nil {
				errs = append(errs, listener.Close())
			}
		}
	}
	d.endTracing()
	errs = append(errs, d.fleets.close())
	for _, c := range d.columnList() {
		errs = append(errs, c.close())
	}
	errs = append(errs, d.closeFollowers()...)
	if d.peers != nil {
		errs = append(errs, d.peers.Close())
	}
	for _, c := range d.collections() {
		errs = append(errs, c.Close())
	}
	if d.cache != nil {
		errs = append(errs, d.cache.Close())
	}
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
	}
	return errors.Join(errs...)
}
