package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/budget"
	"docstore/docservice/collection"
	"docstore/docservice/explain"
	"docstore/docservice/memcached"
	"docstore/docservice/router"
	"docstore/docservice/server/internal/bounded"
	"docstore/docservice/server/livepage"
	"docstore/internal/ctxtime"
	"docstore/internal/units"
	"docstore/lsm"
	"docstore/queue/stored"
)

// readyInterval is the interval at which a starting server checks whether its replicated
// collections are ready.
const readyInterval = 50 * time.Millisecond

// Server owns all parts of a running server: the collections, the listeners, and the lock
// of the data directory.
type Server struct {
	options Options // with defaults
	auth    *Authenticator
	source  Source // nil: none, or it did not start
	parts   Parts  // of source
	// collections are the options of each collection; they share its budgets, caches and limits.
	collections collection.Options
	// messages limits the bytes of requests and responses of all clients over all
	// protocols.
	messages  *budget.Budget
	service   *collection.Service
	router    *router.Router // of HTTP and protocol
	boxcar    *boxcarrpc.Server
	http      *http.Server
	protocol  Protocol // nil: none, or it is not open
	listeners struct {
		boxcar net.Listener
		http   *bounded.Listener
	}
	held struct {
		sync.Mutex
		list []Held // by name
	}
	metrics  *metrics
	reporter *reporter
	states   states
	contacts contacts
	lifetime
}

// Start opens all parts and starts to serve. On error it closes what it opened.
func Start(o Options) (_ *Server, err error) {
	o = o.withDefaults()
	if err := o.Check(""); err != nil {
		return nil, err
	}
	s := &Server{options: o, service: collection.NewService(), states: states{logger: o.Logger, of: map[string]*lastState{}}}
	s.router = router.New(s.service)
	s.begin()
	defer func() {
		if err != nil {
			err = errors.Join(noAddressSpace(err, planForThisMachine(o.Memory).memory), s.close())
		}
	}()
	if s.lock, err = lockData(o.Host.FS, o.DataDir); err != nil {
		return nil, err
	}
	if s.auth, err = o.Security.open(s.options.Logger); err != nil {
		return nil, err
	}
	plan := planForThisMachine(o.Memory)
	if !plan.fits() {
		o.Logger.Warn("--memory exceeds the memory of this machine or container: the kernel ends the process when it is used; lower it",
			"memory", units.FormatBytes(plan.memory), "available", units.FormatBytes(plan.machine.Bytes), "from", plan.machine.From)
	}
	memory := plan.memory
	shares := shareMemory(memory)
	s.messages = budget.New(shares.messages)
	if err = s.listen(); err != nil {
		return nil, err
	}
	if err = s.share(shares); err != nil {
		return nil, err
	}
	if s.auth.access != nil {
		s.service.Authorize(s.Authorize)
	}
	if o.Source != nil {
		if s.parts, err = o.Source.Start(s); err != nil {
			return nil, err
		}
		s.source = o.Source
	}
	for _, c := range o.Collections {
		if err := s.addCollection(c); err != nil {
			return nil, err
		}
	}
	s.metrics = newMetrics(s)
	if err := s.openBoxcar(memory); err != nil {
		return nil, err
	}
	s.serve()
	return s, nil
}

// share makes the options of the collections, which share memory, caches and limits.
func (s *Server) share(shares memoryShares) (err error) {
	o := &s.options
	s.collections = collection.Options{
		FS: o.Host.FS, Now: o.Host.Now, Logger: s.options.Logger, Budget: lsm.NewBudget(shares.index), Decoders: stored.NewDecoderCache(shares.dictionaries),
		Quarantine: o.Quarantine, MaxStaleness: o.MaxStaleness, MergeRate: mergeLimiter(o.MergeRate),
		ScrubInterval: o.ScrubInterval, ScrubBytesPerSecond: o.ScrubRate,
		ScrubSemaphore: make(chan struct{}, 1), // the rate applies to the scrubs of all together
	}
	if o.ScrubInterval == 0 {
		s.collections.ScrubInterval = -1 // 0 is the default of a collection
	}
	if len(o.Memcached) > 0 {
		s.collections.Cache, err = collection.OpenCache(o.Memcached, &memcached.Options{Logger: o.Logger, Dial: o.Host.Dial})
	}
	return err
}

// listen opens the listeners.
func (s *Server) listen() (err error) {
	if s.listeners.boxcar, err = s.options.Host.Listen("--boxcar", s.options.Boxcar); err != nil {
		return err
	}
	listener, err := s.options.Host.Listen("--http", s.options.HTTP.Address)
	if err != nil {
		return err
	}
	s.listeners.http = bounded.New(listener, bounded.Options{Name: "http", MaxConns: httpMaxConns, ClientConns: s.ClientConns(httpMaxConns),
		RequireCredentials: s.options.HTTP.requiresCredentials(), MaxAge: s.options.Limits.ConnAge, Budget: s.messages, Logger: s.options.Logger})
	if s.options.Protocol == nil {
		return nil
	}
	if err := s.options.Protocol.Open(s); err != nil {
		return err
	}
	s.protocol = s.options.Protocol
	return nil
}

// openBoxcar makes the Boxcar server.
func (s *Server) openBoxcar(memory int64) error {
	options := &boxcarrpc.ServerOptions{Budget: s.messages, Logger: s.options.Logger,
		Tools: map[string]boxcarrpc.Handler{explain.Method: s.answerExplain}}
	if s.parts.Boxcar != nil {
		s.parts.Boxcar(options)
	}
	s.auth.configure(options)
	options.Audit = s.options.Audit
	if err := s.options.Limits.limit(options, memory); err != nil {
		return err
	}
	s.options.Tracer.Boxcar(options, s.service)
	s.boxcar = boxcarrpc.NewServer(s.metrics.timed("boxcar", s.service.Handle), s.metrics.boxcar.Instrument(options))
	s.metrics.boxcar.Watch(s.boxcar)
	s.drainUntilReady()
	return nil
}

// serve starts to serve.
func (s *Server) serve() {
	if s.protocol != nil {
		s.protocol.Start(s.options.Tracer.Handler(s.metrics.timed(s.protocol.Name(), s.router.Handle)))
	}
	s.reporter = newReporter(s)
	page := livepage.New(s.reporter, s.options.HTTP.lookUps(), s.options.Logger)
	s.http = newHTTPServer(s, page)
	s.serving.Go(func() { page.Run(s.alive) })
	s.serving.Go(func() { s.Note(s.boxcar.Serve(s.listeners.boxcar), boxcarrpc.ErrServerClosed) })
	s.serving.Go(func() { s.Note(s.serveHTTP(), http.ErrServerClosed) })
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
func (s *Server) addCollection(c Collection) error {
	options := s.collections
	held, err := s.openCollection(c, &options)
	if err != nil {
		return err
	}
	s.held.Lock()
	defer s.held.Unlock()
	i, _ := slices.BinarySearchFunc(s.held.list, c.Name, func(h Held, name string) int { return strings.Compare(h.Name(), name) })
	s.held.list = slices.Insert(s.held.list, i, held)
	return nil
}

func (s *Server) openCollection(c Collection, options *collection.Options) (Held, error) {
	if c.IsURL() {
		if s.source == nil {
			return nil, fmt.Errorf("--collection %s=%s: this program serves only queue directories", c.Name, c.Source)
		}
		return s.source.Open(c, options)
	}
	served, err := collection.Open(c.Name, c.Source, filepath.Join(s.options.DataDir, c.Name), options)
	if err != nil {
		return nil, err
	}
	s.service.Add(served)
	return local{served}, nil
}

// Held returns the collections that the server holds, ordered by name.
func (s *Server) Held() []Held {
	s.held.Lock()
	defer s.held.Unlock()
	return slices.Clone(s.held.list)
}

// heldCollection returns the collection of that name, nil if there is none.
func (s *Server) heldCollection(name string) Held {
	for _, h := range s.Held() {
		if h.Name() == name {
			return h
		}
	}
	return nil
}

// drainUntilReady drains the Boxcar listener while replicated collections are not ready: see
// Held.Column.
func (s *Server) drainUntilReady() {
	ready := func() bool {
		return !slices.ContainsFunc(s.Held(), func(h Held) bool { return h.Column() != nil && !isReady(h) })
	}
	if ready() {
		return
	}
	s.boxcar.Drain()
	s.serving.Go(func() {
		for !ready() {
			if !ctxtime.Sleep(s.alive, readyInterval) {
				return
			}
		}
		if !s.ending.Load() {
			s.boxcar.Undrain()
		}
	})
}

// Apply applies new collections and limits. If it fails nothing changes, except that
// collections before the failing one stay open. The caller calls it from one goroutine.
func (s *Server) Apply(o *Options) error {
	var added []Collection
	for _, c := range o.Collections {
		if !slices.Contains(s.options.Collections, c) {
			added = append(added, c)
		}
	}
	for _, c := range s.options.Collections {
		if !slices.Contains(o.Collections, c) {
			return fmt.Errorf("--collection %s=%s was removed or changed; restart the daemon", c.Name, c.Source)
		}
	}
	admission, err := o.Limits.admission(planForThisMachine(s.options.Memory).memory)
	if err := errors.Join(err, RequireQueues(added, s.options.DataDir)); err != nil {
		return err
	}
	for _, c := range added {
		if err := s.addCollection(c); err != nil {
			return err
		}
		s.options.Collections = append(s.options.Collections, c)
		s.options.Logger.Info("a collection was added", "collection", c.Name, "queue", c.Source)
	}
	if err := s.boxcar.SetAdmission(admission); err != nil {
		return err
	}
	return nil
}

// serveHTTP serves until the server is closed.
func (s *Server) serveHTTP() error {
	if s.http.TLSConfig != nil {
		return s.http.ServeTLS(s.listeners.http, "", "")
	}
	return s.http.Serve(s.listeners.http)
}

// BoxcarAddress returns the address of the Boxcar listener.
func (s *Server) BoxcarAddress() string { return s.listeners.boxcar.Addr().String() }

// HTTPAddress returns the address of the HTTP listener.
func (s *Server) HTTPAddress() string { return s.listeners.http.Addr().String() }

// HTTPURL returns the URL of the HTTP listener at a host and port, without a path.
func (s *Server) HTTPURL(hostPort string) string {
	return s.options.HTTP.scheme(s.auth) + "://" + hostPort
}

// Options returns the options with their defaults.
func (s *Server) Options() *Options { return &s.options }

// Logger returns the log.
func (s *Server) Logger() *slog.Logger { return s.options.Logger }

// DataDir returns the directory of the indexes.
func (s *Server) DataDir() string { return s.options.DataDir }

// Authenticator returns the checks of credentials of clients.
func (s *Server) Authenticator() *Authenticator { return s.auth }

// ClientConns returns how many of the connections of a listener one client may have.
func (s *Server) ClientConns(conns int) int { return s.options.Limits.clientConns(conns) }

// MaxConnAge returns the age at which clients over gRPC and HTTP are asked to connect again;
// 0: never.
func (s *Server) MaxConnAge() time.Duration { return s.options.Limits.ConnAge }

// Messages returns the budget of requests and responses.
func (s *Server) Messages() *budget.Budget { return s.messages }

// Service returns the service of all collections.
func (s *Server) Service() *collection.Service { return s.service }

// Router returns the router of HTTP and the protocol.
func (s *Server) Router() *router.Router { return s.router }

// Boxcar returns the Boxcar server.
func (s *Server) Boxcar() *boxcarrpc.Server { return s.boxcar }

// Metrics returns the registry of the metrics.
func (s *Server) Metrics() *prometheus.Registry { return s.metrics.registry }

// State returns the state that the page shows.
func (s *Server) State() livepage.Source { return s.reporter }

// HTTPHandler returns the handler of the HTTP listener, with its authentication.
func (s *Server) HTTPHandler() http.Handler { return s.http.Handler }

// Collections returns the served collections ordered by name.
func (s *Server) Collections() []*collection.Collection { return s.service.Collections() }

// Collection returns the collection of that name, nil if there is none.
func (s *Server) Collection(name string) *collection.Collection {
	for _, c := range s.Collections() {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// Drain makes clients use other servers.
func (s *Server) Drain() {
	s.ending.Store(true)
	s.boxcar.Drain()
}

// Stop finishes the requests in flight within the grace period, and closes everything. It
// returns the error of a failed listener, if any.
func (s *Server) Stop(grace time.Duration) error {
	s.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	var draining sync.WaitGroup
	listeners := map[string]func(context.Context) error{"boxcar": s.boxcar.Shutdown, "http": s.http.Shutdown}
	if s.protocol != nil {
		listeners[s.protocol.Name()] = s.protocol.Shutdown
	}
	for listener, shutdown := range listeners {
		draining.Go(func() {
			if err := shutdown(ctx); err != nil {
				s.options.Logger.Warn("requests in flight were aborted", "listener", listener, "error", err)
			}
		})
	}
	draining.Wait()
	err := s.close()
	select {
	case <-s.failed:
		return s.failure.err
	default:
		return err
	}
}

// close closes the open parts, in reverse order.
func (s *Server) close() error {
	s.end()
	var errs []error
	if s.http != nil {
		errs = append(errs, s.http.Close(), s.boxcar.Close())
	} else {
		if s.listeners.boxcar != nil {
			errs = append(errs, s.listeners.boxcar.Close())
		}
		if s.listeners.http != nil {
			errs = append(errs, s.listeners.http.Close())
		}
	}
	if s.protocol != nil {
		errs = append(errs, s.protocol.Close())
	}
	s.serving.Wait()
	if s.auth != nil {
		s.auth.sessions.Close()
	}
	s.options.Tracer.Close()
	for _, h := range s.Held() {
		errs = append(errs, h.Close())
	}
	if s.source != nil {
		errs = append(errs, s.source.Close())
	}
	if s.collections.Cache != nil {
		errs = append(errs, s.collections.Cache.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}
