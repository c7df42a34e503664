// Package daemon serves documents by id: it tails queue directories into indexes, answers
// over Boxcar and HTTP, and reports its state on a page, in /readyz and as metrics. A Source
// adds collections that are elsewhere, a Protocol another listener, a Tracer spans; without
// them the package links none of their libraries.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/budget"
	"docstore/docservice/collection"
	"docstore/docservice/server/livepage"
	"docstore/internal/bounded"
	"docstore/internal/ctxtime"
	"docstore/internal/listen"
	"docstore/lsm"
	"docstore/queue/stored"
)

// readyInterval is the interval at which a starting daemon checks whether its replicated
// collections are ready.
const readyInterval = 50 * time.Millisecond

// Server owns all parts of a running daemon: the collections, the listeners, and the lock
// of the data directory.
type Server struct {
	options Options // with defaults
	log     *slog.Logger
	auth    *Authenticator
	tracer  Tracer
	lock    io.Closer
	cache   *collection.Cache // nil: none
	source  Source            // nil: none, or it did not start
	parts   Parts             // of source
	budget  *lsm.Budget       // of all collections
	// decoders caches the dictionaries of all collections, within the same memory.
	decoders  *stored.DecoderCache
	mergeRate *rate.Limiter // of all collections; nil: no limit
	// scrubSemaphore makes --scrub-rate apply to the scrubs of all collections together.
	scrubSemaphore chan struct{}
	// messages limits the bytes of requests and responses of all clients over all
	// protocols.
	messages       *budget.Budget
	service        *collection.Service
	handler        boxcarrpc.Handler // of HTTP and protocol
	boxcar         *boxcarrpc.Server
	http           *http.Server
	boxcarListener net.Listener
	httpListener   *bounded.Listener
	protocol       Protocol // nil: none, or it is not open

	held struct {
		sync.Mutex
		list []Held // by name
	}

	metrics  *metrics
	reporter *reporter

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

// Start opens all parts and starts to serve. On error it closes what it opened.
func Start(o Options) (_ *Server, err error) {
	o = o.withDefaults()
	if err := o.Check(""); err != nil {
		return nil, err
	}
	d := &Server{options: o, log: o.Logger, tracer: o.Tracer, service: collection.NewService(), failed: make(chan struct{}), scrubSemaphore: make(chan struct{}, 1)}
	d.alive, d.end = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if d.lock, err = lockData(o.DataDir); err != nil {
		return nil, err
	}
	if d.auth, err = o.Security.open(d.log); err != nil {
		return nil, err
	}
	memory := planForThisMachine(o.Memory).memory
	shares := shareMemory(memory)
	d.messages, d.decoders, d.budget = budget.New(shares.messages), stored.NewDecoderCache(shares.dictionaries), lsm.NewBudget(shares.index)
	d.mergeRate = mergeLimiter(o.MergeRate)
	if err = d.listen(); err != nil {
		return nil, err
	}
	if len(o.Memcached) > 0 {
		if d.cache, err = collection.OpenCache(o.Memcached, d.log); err != nil {
			return nil, err
		}
	}
	if d.auth.access != nil {
		d.service.Authorize(d.Authorize)
	}
	if o.Source != nil {
		if d.parts, err = o.Source.Start(d); err != nil {
			return nil, err
		}
		d.source = o.Source
	}
	if d.handler = d.parts.Handler; d.handler == nil {
		d.handler = d.service.Handle
	}
	for _, c := range o.Collections {
		if err := d.addCollection(c); err != nil {
			return nil, err
		}
	}
	d.metrics = newMetrics(d)
	if err := d.openBoxcar(memory); err != nil {
		return nil, err
	}
	d.serve()
	return d, nil
}

// listen opens the listeners.
func (d *Server) listen() (err error) {
	if d.boxcarListener, err = listen.TCP("--boxcar", d.options.Boxcar); err != nil {
		return err
	}
	listener, err := listen.TCP("--http", d.options.HTTP.Address)
	if err != nil {
		return err
	}
	d.httpListener = bounded.New(listener, bounded.Options{Name: "http", MaxConns: httpMaxConns, ClientConns: d.ClientConns(httpMaxConns),
		RequireCredentials: d.options.HTTP.requiresCredentials(), MaxAge: d.options.Limits.ConnAge, Budget: d.messages, Logger: d.log})
	if d.options.Protocol == nil {
		return nil
	}
	if err := d.options.Protocol.Open(d); err != nil {
		return err
	}
	d.protocol = d.options.Protocol
	return nil
}

// openBoxcar makes the Boxcar server.
func (d *Server) openBoxcar(memory int64) error {
	options := &boxcarrpc.ServerOptions{Budget: d.messages, Logger: d.log, Prefetch: d.service.Prefetch()}
	if d.parts.Boxcar != nil {
		d.parts.Boxcar(options)
	}
	d.auth.configure(options)
	options.Audit = d.options.Audit
	if err := d.options.Limits.limit(options, memory); err != nil {
		return err
	}
	d.tracer.Boxcar(options, d.service)
	d.boxcar = boxcarrpc.NewServer(d.metrics.timed("boxcar", d.service.Handle), d.metrics.boxcar.Instrument(options))
	d.metrics.boxcar.Watch(d.boxcar)
	d.drainUntilReady()
	return nil
}

// serve starts to serve.
func (d *Server) serve() {
	if d.protocol != nil {
		d.protocol.Start(d.tracer.Handler(d.metrics.timed(d.protocol.Name(), d.handler)))
	}
	d.reporter = newReporter(d)
	page := livepage.New(d.reporter, d.options.HTTP.lookUps(), d.log)
	d.http = newHTTPServer(d, page)
	d.serving.Go(func() { page.Run(d.alive) })
	d.serving.Go(func() { d.Note(d.boxcar.Serve(d.boxcarListener), boxcarrpc.ErrServerClosed) })
	d.serving.Go(func() { d.Note(d.serveHTTP(), http.ErrServerClosed) })
}

// mergeBurst is what a merge may write at once: it waits after each MiB.
const mergeBurst = 1 << 20

// mergeLimiter returns the limiter of merges, nil for no limit.
func mergeLimiter(bytesPerSecond int64) *rate.Limiter {
	if bytesPerSecond == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(bytesPerSecond), mergeBurst)
}

// addCollection opens a collection and serves it.
func (d *Server) addCollection(c Collection) error {
	options := &collection.Options{
		Logger: d.log, Budget: d.budget, Decoders: d.decoders, Quarantine: d.options.Quarantine, Cache: d.cache,
		ScrubInterval: d.options.ScrubInterval, ScrubBytesPerSecond: d.options.ScrubRate, ScrubSemaphore: d.scrubSemaphore,
		MaxStaleness: d.options.MaxStaleness, MergeRate: d.mergeRate,
	}
	if options.ScrubInterval == 0 {
		options.ScrubInterval = -1 // 0 is the default of a collection
	}
	held, err := d.openCollection(c, options)
	if err != nil {
		return err
	}
	d.held.Lock()
	defer d.held.Unlock()
	i, _ := slices.BinarySearchFunc(d.held.list, c.Name, func(h Held, name string) int { return strings.Compare(h.Name(), name) })
	d.held.list = slices.Insert(d.held.list, i, held)
	return nil
}

func (d *Server) openCollection(c Collection, options *collection.Options) (Held, error) {
	if c.IsURL() {
		if d.source == nil {
			return nil, fmt.Errorf("--collection %s=%s: this program serves only queue directories", c.Name, c.Source)
		}
		return d.source.Open(c, options)
	}
	served, err := collection.Open(c.Name, c.Source, filepath.Join(d.options.DataDir, c.Name), options)
	if err != nil {
		return nil, err
	}
	d.service.Add(served)
	return local{served}, nil
}

// Held returns the collections that the daemon holds, ordered by name.
func (d *Server) Held() []Held {
	d.held.Lock()
	defer d.held.Unlock()
	return slices.Clone(d.held.list)
}

// heldCollection returns the collection of that name, nil if there is none.
func (d *Server) heldCollection(name string) Held {
	for _, h := range d.Held() {
		if h.Name() == name {
			return h
		}
	}
	return nil
}

// drainUntilReady drains the Boxcar listener while replicated collections are not ready: see
// Held.Replicated.
func (d *Server) drainUntilReady() {
	ready := func() bool {
		return !slices.ContainsFunc(d.Held(), func(h Held) bool { return h.Replicated() && !h.Ready() })
	}
	if ready() {
		return
	}
	d.boxcar.Drain()
	d.serving.Go(func() {
		for !ready() {
			if !ctxtime.Sleep(d.alive, readyInterval) {
				return
			}
		}
		if !d.ending.Load() {
			d.boxcar.Undrain()
		}
	})
}

// Apply applies new collections and limits. If it fails nothing changes, except that
// collections before the failing one stay open. The caller calls it from one goroutine.
func (d *Server) Apply(o *Options) error {
	var added []Collection
	for _, c := range o.Collections {
		if !slices.Contains(d.options.Collections, c) {
			added = append(added, c)
		}
	}
	for _, c := range d.options.Collections {
		if !slices.Contains(o.Collections, c) {
			return fmt.Errorf("--collection %s=%s was removed or changed; restart the daemon", c.Name, c.Source)
		}
	}
	admission, err := o.Limits.admission(planForThisMachine(d.options.Memory).memory)
	if err := errors.Join(err, RequireQueues(added, d.options.DataDir)); err != nil {
		return err
	}
	for _, c := range added {
		if err := d.addCollection(c); err != nil {
			return err
		}
		d.options.Collections = append(d.options.Collections, c)
		d.log.Info("a collection was added", "collection", c.Name, "queue", c.Source)
	}
	if err := d.boxcar.SetAdmission(admission); err != nil {
		return err
	}
	return nil
}

// serveHTTP serves until the server is closed.
func (d *Server) serveHTTP() error {
	if d.http.TLSConfig != nil {
		return d.http.ServeTLS(d.httpListener, "", "")
	}
	return d.http.Serve(d.httpListener)
}

// Note records the error of a listener, unless it is the expected one of a shutdown. The
// daemon then fails.
func (d *Server) Note(err, told error) {
	if !errors.Is(err, told) {
		d.failure.Do(func() {
			d.failure.err = err
			close(d.failed)
		})
	}
}

// BoxcarAddress returns the address of the Boxcar listener.
func (d *Server) BoxcarAddress() string { return d.boxcarListener.Addr().String() }

// AdvertisedAddress returns the address under which other machines find the Boxcar listener:
// advertise, or if it is empty that of the listener, with the name of this machine if it has
// no IP address.
func (d *Server) AdvertisedAddress(advertise string) (string, error) {
	return advertisedAddress(advertise, d.BoxcarAddress())
}

func advertisedAddress(advertise, listener string) (string, error) {
	if advertise != "" {
		return advertise, nil
	}
	host, port, err := net.SplitHostPort(listener)
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
		return listener, nil
	}
	if host, err = os.Hostname(); err != nil {
		return "", fmt.Errorf("the host's name: %w; give --advertise", err)
	}
	return net.JoinHostPort(host, port), nil
}

// HTTPAddress returns the address of the HTTP listener.
func (d *Server) HTTPAddress() string { return d.httpListener.Addr().String() }

// HTTPURL returns the URL of the HTTP listener at a host and port, without a path.
func (d *Server) HTTPURL(hostPort string) string {
	return d.options.HTTP.scheme(d.auth) + "://" + hostPort
}

// Options returns the options with their defaults.
func (d *Server) Options() *Options { return &d.options }

// Logger returns the log.
func (d *Server) Logger() *slog.Logger { return d.log }

// DataDir returns the directory of the indexes.
func (d *Server) DataDir() string { return d.options.DataDir }

// Authenticator returns the checks of credentials of clients.
func (d *Server) Authenticator() *Authenticator { return d.auth }

// ClientConns returns how many of the connections of a listener one client may have.
func (d *Server) ClientConns(conns int) int { return d.options.Limits.clientConns(conns) }

// MaxConnAge returns the age at which clients over gRPC and HTTP are asked to connect again;
// 0: never.
func (d *Server) MaxConnAge() time.Duration { return d.options.Limits.ConnAge }

// Messages returns the budget of requests and responses.
func (d *Server) Messages() *budget.Budget { return d.messages }

// Service returns the service of all collections.
func (d *Server) Service() *collection.Service { return d.service }

// Boxcar returns the Boxcar server.
func (d *Server) Boxcar() *boxcarrpc.Server { return d.boxcar }

// Metrics returns the registry of the metrics.
func (d *Server) Metrics() *prometheus.Registry { return d.metrics.registry }

// State returns the state that the page shows.
func (d *Server) State() livepage.Source { return d.reporter }

// HTTPHandler returns the handler of the HTTP listener, with its authentication.
func (d *Server) HTTPHandler() http.Handler { return d.http.Handler }

// Alive returns a context that ends when the daemon is closed.
func (d *Server) Alive() context.Context { return d.alive }

// Go runs f in a goroutine, which the end of Alive must stop. Stop waits for it.
func (d *Server) Go(f func()) { d.serving.Go(f) }

// Failed is closed when a listener fails. Stop returns its error.
func (d *Server) Failed() <-chan struct{} { return d.failed }

// Ending reports whether the daemon is being stopped.
func (d *Server) Ending() bool { return d.ending.Load() }

// Collections returns the served collections ordered by name.
func (d *Server) Collections() []*collection.Collection { return d.service.Collections() }

// Collection returns the collection of that name, nil if there is none.
func (d *Server) Collection(name string) *collection.Collection {
	for _, c := range d.Collections() {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// Drain makes clients use other servers.
func (d *Server) Drain() {
	d.ending.Store(true)
	d.boxcar.Drain()
}

// Stop finishes the requests in flight within the grace period, and closes everything. It
// returns the error of a failed listener, if any.
func (d *Server) Stop(grace time.Duration) error {
	d.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	var draining sync.WaitGroup
	listeners := map[string]func(context.Context) error{"boxcar": d.boxcar.Shutdown, "http": d.http.Shutdown}
	if d.protocol != nil {
		listeners[d.protocol.Name()] = d.protocol.Shutdown
	}
	for listener, shutdown := range listeners {
		draining.Go(func() {
			if err := shutdown(ctx); err != nil {
				d.log.Warn("requests in flight were aborted", "listener", listener, "error", err)
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
func (d *Server) close() error {
	d.end()
	var errs []error
	if d.http != nil {
		errs = append(errs, d.http.Close(), d.boxcar.Close())
	} else {
		if d.boxcarListener != nil {
			errs = append(errs, d.boxcarListener.Close())
		}
		if d.httpListener != nil {
			errs = append(errs, d.httpListener.Close())
		}
	}
	if d.protocol != nil {
		errs = append(errs, d.protocol.Close())
	}
	d.serving.Wait()
	if d.auth != nil {
		d.auth.sessions.Close()
	}
	d.tracer.Close()
	for _, h := range d.Held() {
		errs = append(errs, h.Close())
	}
	if d.source != nil {
		errs = append(errs, d.source.Close())
	}
	if d.cache != nil {
		errs = append(errs, d.cache.Close())
	}
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
	}
	return errors.Join(errs...)
}
