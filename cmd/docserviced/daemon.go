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
	"google.golang.org/grpc"

	"docstore/boxcarrpc"
	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/livepage"
	"docstore/docservice"
	"docstore/lsm"
	"docstore/queue"
)

// daemonOptions say what a daemon serves and where.
type daemonOptions struct {
	collectionFlags []string         // as they were given
	collections     []collectionFlag // of these
	quiet           bool
	limits          limits
	dataDir         string
	boxcar          string
	http            httpFlags
	grpc            string // empty: none
	memory          cli.Size
	grace           time.Duration
	quarantine      bool
	scrubInterval   time.Duration // 0: never
	scrubRate       cli.Size      // bytes a second
	maxStaleness    time.Duration // 0: no limit
	memcached       []string      // addresses; empty: none
	security        security
	tracing         tracing
	entering        entering
}

// daemon is everything that serves: the collections, the listeners to them, and the
// lock of their directory.
type daemon struct {
	env     *cli.Env
	options daemonOptions
	keeper  *keeper
	// tracing makes spans; nil: none.
	tracing *trace.TracerProvider
	lock    io.Closer
	cache   *docservice.Cache // nil: none
	budget  *lsm.Budget       // of all collections
	// decoders keeps the dictionaries of all collections, out of the same memory.
	decoders *queue.DecoderCache
	// scrubTurn bounds the scrubs of all collections to --scrub-rate.
	scrubTurn chan struct{}
	// messages bounds the bytes of requests and answers of all clients, by any protocol.
	messages       *boxcarrpc.Budget
	service        *docservice.Service
	boxcar         *boxcarrpc.Server
	http           *http.Server
	boxcarListener net.Listener
	httpListener   *boundedListener
	grpc           *grpc.Server     // nil: none
	grpcListener   *boundedListener // nil: none
	// Streams of health over gRPC, of clients with proof or that need none, and without.
	watches, unprovedWatches atomic.Int64

	settings atomic.Pointer[[]cli.Setting] // that hold; nil: nobody has said
	grace    atomic.Int64                  // a time.Duration

	alive   context.Context // until it closes
	end     context.CancelFunc
	ending  atomic.Bool // readiness ends before the service does
	serving sync.WaitGroup
	failed  chan struct{} // closed when a listener has failed
	failure struct {
		sync.Once
		err error
	}
}

// decoderShare: dictionaries take this part of a quarter of the memory. At the default
// of 512 MiB that is 32 MiB, 500 dictionaries of the size that a writer makes.
const decoderShare = 4

// startDaemon opens everything and begins to serve. On an error nothing is left
// open.
func startDaemon(env *cli.Env, o daemonOptions) (_ *daemon, err error) {
	d := &daemon{env: env, options: o, service: docservice.NewService(), failed: make(chan struct{}), scrubTurn: make(chan struct{}, 1)}
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
	if d.keeper, err = o.security.open(env.Log); err != nil {
		return nil, err
	}
	if d.tracing, err = o.tracing.open(d.alive, env); err != nil {
		return nil, err
	}
	if d.boxcarListener, err = listen("--boxcar", o.boxcar); err != nil {
		return nil, err
	}
	quarter := int64(o.memory) / 4
	d.messages, d.decoders = boxcarrpc.NewBudget(quarter), queue.NewDecoderCache(quarter/decoderShare)
	d.budget = lsm.NewBudget(3*quarter - quarter/decoderShare)
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
		d.grpcListener.grpc, d.grpcListener.proof = true, o.security.asksForProof()
	}
	if len(o.memcached) > 0 {
		if d.cache, err = docservice.OpenCache(o.memcached, env.Log); err != nil {
			return nil, err
		}
	}
	for _, c := range o.collections {
		if err := d.addCollection(c); err != nil {
			return nil, err
		}
	}
	metrics := newMetrics(d)
	options := &boxcarrpc.ServerOptions{Budget: d.messages, Logger: env.Log, Prefetch: d.service.Ahead()}
	d.keeper.keep(options)
	if err = o.limits.limit(options, int64(o.memory)); err != nil {
		return nil, err
	}
	d.traceBoxcar(options)
	d.boxcar = boxcarrpc.NewServer(metrics.timed("boxcar", d.service.Handle), metrics.boxcar.Instrument(options))
	metrics.boxcar.Watch(d.boxcar)
	if d.grpcListener != nil {
		d.grpc = newGRPCServer(d, metrics.timed("grpc", d.service.Handle))
	}
	page := livepage.New(newReporter(d, metrics), o.http.lookUps(), env.Log)
	d.http = newHTTPServer(d, metrics, page)
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
	options := &docservice.CollectionOptions{
		Logger: d.env.Log, Budget: d.budget, Decoders: d.decoders, Quarantine: d.options.quarantine, Cache: d.cache,
		ScrubInterval: d.options.scrubInterval, ScrubBytesPerSecond: int64(d.options.scrubRate), ScrubTurn: d.scrubTurn,
		MaxStaleness: d.options.maxStaleness,
	}
	if options.ScrubInterval == 0 {
		options.ScrubInterval = -1 // the flag's never
	}
	collection, err := docservice.OpenCollection(c.name, c.queueDir, filepath.Join(d.options.dataDir, c.name), options)
	if err != nil {
		return err
	}
	d.service.Add(collection)
	return nil
}

// serveHTTP serves until the server is closed.
func (d *daemon) serveHTTP() error {
	if d.http.TLSConfig != nil {
		return d.http.ServeTLS(d.httpListener, "", "")
	}
	return d.http.Serve(d.httpListener)
}

// listen opens a listener; flag says which.
func listen(flag, address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s %s: the address is in use; stop what listens there, or give another", flag, address)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, address, err)
	}
	return listener, nil
}

// note takes down why a listener has stopped to serve, unless it was told to.
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

// addresses are where the listeners are, for the log.
func (d *daemon) addresses() []any {
	r := []any{"boxcar", d.boxcarAddress(), "http", d.options.http.scheme(d.keeper) + "://" + d.httpAddress()}
	if d.grpcListener != nil {
		r = append(r, "grpc", d.grpcListener.Addr().String())
	}
	return r
}

// collections are those that are served, in the order of their names.
func (d *daemon) collections() []*docservice.Collection { return d.service.Collections() }

// collection returns the collection of that name, nil if there is none.
func (d *daemon) collection(name string) *docservice.Collection {
	for _, c := range d.collections() {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// stop finishes the requests under way within the grace period, and closes
// everything. It returns why the daemon has failed, if it has.
func (d *daemon) stop(grace time.Duration) error {
	d.ending.Store(true)
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
				d.env.Log.Warn("requests were cut off", "listener", listener, "error", err)
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

// close releases whatever is open, in the order opposite to opening it.
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
