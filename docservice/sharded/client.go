package sharded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"docstore/boxcarrpc"
	"docstore/docservice"
	"docstore/docservice/placement"
	"docstore/internal/ctxtime"
)

// ErrNoPlacement is the error of a call if no placement is known or it gives the shard to
// no column. It matches docservice.ErrUnavailable.
var ErrNoPlacement = fmt.Errorf("%w: sharded: no server is known for the shard", docservice.ErrUnavailable)

// Options configure a Client.
type Options struct {
	// Pool returns a pool of the servers of a column. Set PoolOptions.Methods to
	// docservice.IdempotentMethods(). The Client closes the pool. A column whose pool
	// cannot be made has no servers until the placement changes.
	Pool func(column string) (*boxcarrpc.Pool, error)
	// Logger logs columns without a pool. The default discards it.
	Logger *slog.Logger
}

// Client fetches the documents of a collection from the servers of all columns. Its methods
// are those of docservice.Client and are safe for concurrent use.
type Client struct {
	source     placement.Source
	collection string
	options    Options
	plain      bool
	shared     *shared
}

// shared is the state that a Client and its Plain form share.
type shared struct {
	routes  atomic.Pointer[routes]
	alive   context.Context //nolint:containedctx // ended by stop
	stop    context.CancelFunc
	running sync.WaitGroup
	hedger  hedger

	mu struct {
		sync.Mutex
		removed []*column // to be closed
	}
}

// NewClient returns a client of the collection. It waits for nothing: until the source has
// a placement, calls fail with ErrNoPlacement; see WaitReady.
func NewClient(source placement.Source, collection string, opts *Options) (*Client, error) {
	if opts == nil || opts.Pool == nil {
		return nil, errors.New("sharded: Options.Pool is missing")
	}
	c := &Client{source: source, collection: collection, options: *opts, shared: &shared{}}
	if c.options.Logger == nil {
		c.options.Logger = slog.New(slog.DiscardHandler)
	}
	c.shared.alive, c.shared.stop = context.WithCancel(context.Background())
	m, changed := source.Map()
	c.use(m)
	c.shared.running.Go(func() { c.follow(changed) })
	return c, nil
}

// Plain returns a client for which the servers decode the documents: see
// docservice.Client.Plain. Closing one closes both.
func (c *Client) Plain() *Client {
	p := *c
	p.plain = true
	return &p
}

// Close closes the pools. Calls in progress fail.
func (c *Client) Close() error {
	c.shared.stop()
	c.shared.running.Wait()
	var failed []error
	if r := c.shared.routes.Load(); r != nil {
		for _, one := range r.columns {
			failed = append(failed, one.pool.Close())
		}
	}
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	for _, one := range c.shared.mu.removed {
		failed = append(failed, one.pool.Close())
	}
	c.shared.mu.removed = nil
	return errors.Join(failed...)
}

// WaitReady waits until a placement is known and each column that holds a shard has a
// server. It returns the error of the context if that ends first.
func (c *Client) WaitReady(ctx context.Context) error {
	for {
		_, changed := c.source.Map()
		if r := c.current(); r != nil {
			for one := range r.holders() {
				if err := one.pool.WaitReady(ctx); err != nil {
					return fmt.Errorf("sharded: column %s: %w", one.name, err)
				}
			}
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("sharded: no placement of %q: %w", c.collection, ctx.Err())
		}
	}
}

// PoolStats returns the statistics of the pools of all columns.
func (c *Client) PoolStats() []boxcarrpc.PoolStats {
	var stats []boxcarrpc.PoolStats
	if r := c.shared.routes.Load(); r != nil {
		for _, name := range slices.Sorted(maps.Keys(r.columns)) {
			stats = append(stats, r.columns[name].pool.Stats())
		}
	}
	return stats
}

// current returns the routes of the source's current map.
func (c *Client) current() *routes {
	m, _ := c.source.Map()
	if r := c.shared.routes.Load(); m == nil || r != nil && r.placement == m {
		return r
	}
	c.use(m)
	return c.shared.routes.Load()
}

// known returns the last routes, without a look at the source if there are any.
func (c *Client) known() *routes {
	if r := c.shared.routes.Load(); r != nil {
		return r
	}
	return c.current()
}

// follow uses each map of the source.
func (c *Client) follow(changed <-chan struct{}) {
	for {
		select {
		case <-c.shared.alive.Done():
			return
		case <-changed:
		}
		var m *placement.Map
		m, changed = c.source.Map()
		c.use(m)
	}
}

// use routes by a map, unless it is not valid. Pools of columns that it does not have are
// closed later.
func (c *Client) use(m *placement.Map) {
	if m == nil || m.Check() != nil {
		return // the last one stays in use
	}
	s := c.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.routes.Load()
	if before != nil && before.placement == m || s.alive.Err() != nil {
		return
	}
	after, old := newRoutes(m, before, c.open)
	s.routes.Store(after)
	for _, one := range old {
		s.mu.removed = append(s.mu.removed, one)
		s.running.Go(func() { c.closeLater(one) })
	}
}

// open makes the pool of a column.
func (c *Client) open(name string) *column {
	pool, err := c.options.Pool(name)
	if err != nil {
		c.options.Logger.Warn("no pool for a column", "collection", c.collection, "column", name, "error", err)
		return nil
	}
	client := docservice.NewClient(pool, c.collection)
	return &column{name: name, pool: pool, client: client, plain: client.Plain()}
}

// closeLater closes the pool of a removed column after RemovedPoolTime, or leaves it to
// Close.
func (c *Client) closeLater(one *column) {
	if !ctxtime.Sleep(c.shared.alive, RemovedPoolTime) {
		return
	}
	c.shared.mu.Lock()
	c.shared.mu.removed = slices.DeleteFunc(c.shared.mu.removed, func(other *column) bool { return other == one })
	c.shared.mu.Unlock()
	_ = one.pool.Close()
}

// clientOf returns the client of a column.
func (c *Client) clientOf(one *column) *docservice.Client {
	if c.plain {
		return one.plain
	}
	return one.client
}

// Get appends the document with the id to dst: see docservice.Client.Get.
func (c *Client) Get(ctx context.Context, dst []byte, id string) ([]byte, error) {
	r := c.known()
	if r == nil {
		return dst, ErrNoPlacement
	}
	one := r.choose(r.placement.Layout.ShardString(id), 0)
	if one == nil {
		return c.getAgain(ctx, dst, id, r, ErrNoPlacement)
	}
	out, err := c.clientOf(one).Get(ctx, dst, id)
	if err == nil || !elsewhere(err) {
		return out, err
	}
	return c.getAgain(ctx, dst, id, r, err)
}

// elsewhere reports whether another server may have the document.
func elsewhere(err error) bool {
	return errors.Is(err, docservice.ErrMoved) || errors.Is(err, docservice.ErrUnavailable) ||
		errors.Is(err, docservice.ErrNoCollection) || errors.Is(err, boxcarrpc.ErrNoServer)
}

// getAgain is Get after the attempt with the routes r has failed with err.
func (c *Client) getAgain(ctx context.Context, dst []byte, id string, r *routes, err error) ([]byte, error) {
	s := search{client: c, routes: r}
	for s.next(ctx, err) {
		one := s.routes.choose(s.routes.placement.Layout.ShardString(id), s.place)
		if one == nil {
			err = ErrNoPlacement
			continue
		}
		out, failed := c.clientOf(one).Get(ctx, dst, id)
		switch {
		case failed == nil:
			return out, nil
		case elsewhere(failed):
			err = failed
			continue
		case ctx.Err() != nil && !docservice.IsAnswer(failed): // report the last answer too
			return dst, fmt.Errorf("%w: %w", s.result(err), failed)
		}
		return out, failed
	}
	return dst, s.result(err)
}
