package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/placement/etcdmap"
	"docstore/docservice/sharded/etcdclient"
	"docstore/internal/ctxtime"
	"docstore/internal/simulate/chance"
	"docstore/queue/shard"
)

const (
	// callTime bounds a request of a client.
	callTime = 2 * time.Second
	// hastyTime is the time for which a client asks often a server that has caught up.
	hastyTime = 3 * time.Second
	// The most ids of a batch.
	smallBatchIDs = 30
	largeBatchIDs = 300
	pageIDs       = 50
	// poolSize is more than the calls of a list of several shards at a time.
	poolSize = 16
)

func itoa(n int) string { return strconv.Itoa(n) }

// asker is a client of one server or several, which judges each answer.
type asker struct {
	w       *world
	name    string
	servers []string    // names
	single  *serverHost // the only server; nil: there are several
	patient bool        // it waits callTime for a response
}

// client asks by Boxcar.
type client struct {
	asker
	client documents
	pools  func() []boxcarrpc.PoolStats
	close  func() error
}

// documents is the client of one pool, or of several columns.
type documents interface {
	Get(ctx context.Context, dst []byte, id string) ([]byte, error)
	GetMany(ctx context.Context, ids []string, fn func(i int, document []byte, err error) error) error
	Scan(ctx context.Context, o docservice.ScanOptions, fn func(id string, document []byte, err error) error) (next []byte, err error)
}

// newClient returns a client of one server, or of all if single is nil.
func (w *world) newClient(single *serverHost) (*client, error) {
	c := &client{asker: asker{w: w, name: "client of all", single: single, patient: true}}
	hosts := w.servers
	if single != nil {
		c.name, hosts = "client of "+single.name, []*serverHost{single}
	}
	var addresses []string
	for _, h := range hosts {
		c.servers, addresses = append(c.servers, h.name), append(addresses, h.boxcar())
	}
	options := w.access.pool(boxcarrpc.PoolOptions{
		Size: poolSize, Methods: docservice.IdempotentMethods(), Dialer: dialerOf(w.clients), Name: c.name, CallTimeout: callTime, Seed: w.config.Seed,
	}, clientToken)
	if w.etcd != nil && c.single == nil {
		columns, err := etcdclient.Open(w.etcdAddress(), collectionName, &etcdclient.Options{Pool: options, Store: etcdmap.Options{Dial: w.clients.Dial}})
		if err != nil {
			return nil, err
		}
		c.client, c.pools, c.close = columns, columns.PoolStats, columns.Close
		return c, nil
	}
	pool, err := boxcarrpc.NewPool(discovery.Static(addresses...), &options)
	if err != nil {
		return nil, err
	}
	c.client, c.close = docservice.NewClient(pool, collectionName), pool.Close
	c.pools = func() []boxcarrpc.PoolStats { return []boxcarrpc.PoolStats{pool.Stats()} }
	return c, nil
}

// ask sends random requests until ctx ends.
func (c *client) ask(ctx context.Context) {
	var behind time.Time // when the only server was last known to lack entries
	for ctx.Err() == nil {
		d := c.w.chance.Next("ask " + c.name)
		c.one(&d)
		pause := d.Duration(20*time.Millisecond, time.Second)
		if c.single != nil && !c.single.isComplete() && c.w.account.announcedBefore(time.Now()) > 0 {
			behind = time.Now()
		}
		if time.Since(behind) < hastyTime {
			pause /= 20 // a server that catches up may find ids missing, or list those that are gone
		}
		if !ctxtime.Sleep(ctx, pause) {
			return
		}
	}
}

// one sends one request.
func (c *client) one(d *chance.Draw) {
	switch kind := d.Int(20); {
	case kind < 12:
		c.get(c.randomID(d))
	case kind < 16:
		c.batch(c.randomIDs(d))
	default:
		if c.w.etcd == nil || c.single == nil { // a server lists its shards only
			c.page(c.randomID(d))
		}
	}
}

// randomID returns an id that was written, or rarely one that never is.
func (c *asker) randomID(d *chance.Draw) string { return "doc-" + itoa(d.Int(c.w.config.IDs+2)) }

// randomIDs returns the ids of a batch.
func (c *asker) randomIDs(d *chance.Draw) []string {
	ids := make([]string, 1+d.Int(c.w.config.batchIDs()))
	for i := range ids {
		ids[i] = c.randomID(d)
	}
	return ids
}

func (c *client) get(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	before, incomplete := c.serves(id), c.incomplete()
	q := c.question()
	document, err := c.client.Get(ctx, nil, id)
	c.judge(q, before, incomplete, id, document, err)
}

// judge judges the answer for an id.
func (c *asker) judge(q question, before bool, incomplete *serverProcess, id string, document []byte, err error) {
	a := c.w.account
	q.ready = before
	switch {
	case err == nil:
		q.partial = (q.partial || !c.allComplete()) && c.w.hasCompacted()
		a.found(q, id, document)
	case errors.Is(err, docservice.ErrNotFound):
		a.missing(q, id)
		if c.single != nil && incomplete == c.single.current() && incomplete != nil && !c.single.isComplete() && !c.single.isFaulted() {
			a.wrongf("incomplete", "%s did not find %s before it had read what was announced", c.single.name, id)
		}
	case errors.Is(err, docservice.ErrMoved):
		a.other("moved")
	case errors.Is(err, docservice.ErrUnavailable):
		a.other("unavailable")
		if before && c.serves(id) && !c.single.explained(q.began) {
			a.wrongf("ready", "%s is ready, and %s is unavailable: %v", c.single.name, id, err)
		}
	default:
		c.failed(q, id, err)
	}
}

// isComplete reports whether the server has read what was announced before it started. It does not
// know of shards: those of a column are not ready one by one.
func (h *serverHost) isComplete() bool {
	h.mu.Lock()
	p := h.mu.process
	h.mu.Unlock()
	if p == nil || p.server == nil {
		return false
	}
	if h.w.etcd != nil {
		return true
	}
	held := p.server.Held()
	return len(held) > 0 && held[0].Shards()[0].IsReady()
}

// allComplete reports whether each server is complete, as of isComplete.
func (c *asker) allComplete() bool {
	return !slices.ContainsFunc(c.servers, func(name string) bool { return !c.w.host(name).isComplete() })
}

// question records that a request begins. Nothing is known of a server that starts: it may have to
// build a damaged index again.
func (c *asker) question() question {
	starts := false
	for _, name := range c.servers {
		h := c.w.host(name)
		if p := h.current(); p != nil && h.started() == nil {
			starts = true
		}
		if h.rebuilds() {
			c.w.account.lostIndex(name)
		}
	}
	q := c.w.account.ask(c.servers...)
	q.whole = c.w.isWhole()
	if q.partial = !c.allComplete(); starts {
		clear(q.floors)
	}
	return q
}

// rebuilds reports whether the server has set a damaged index aside, and has not built another one
// completely. It serves older documents meanwhile.
func (h *serverHost) rebuilds() bool {
	s := h.started()
	return s != nil && slices.ContainsFunc(s.Collections(), func(c *collection.Collection) bool {
		return slices.ContainsFunc(c.Faults(), func(f collection.Fault) bool { return strings.HasSuffix(f.Path, damagedIndex) })
	})
}

// isFaulted reports whether the server knows of a fault: then it may not be complete any more.
func (h *serverHost) isFaulted() bool {
	s := h.started()
	return s != nil && slices.ContainsFunc(s.Collections(), func(c *collection.Collection) bool { return len(c.Faults()) > 0 })
}

// incomplete returns the process of the only server if it is not complete, else nil.
func (c *asker) incomplete() *serverProcess {
	if c.single == nil || c.single.isComplete() {
		return nil
	}
	return c.single.current()
}

// serves reports whether the only server is ready and serves the shard of an id. Shards that the
// placement assigns to a column later are unavailable until they are served.
func (c *asker) serves(id string) bool {
	return c.single != nil && c.single.observe() && (c.w.etcd == nil || c.single.holds(shard.Name(collectionName, c.w.layout.ShardString(id))))
}

// holds reports whether the server serves a shard.
func (h *serverHost) holds(shard string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.process != nil && h.mu.process.server != nil && h.mu.process.server.Collection(shard) != nil
}

// observe returns whether the server is ready, and tells the account what it must have read.
func (h *serverHost) observe() bool {
	if !h.ready() {
		return false
	}
	h.mu.Lock()
	p, learned := h.mu.process, h.mu.learned
	h.mu.Unlock()
	if p != nil && p.sure {
		learned = p.goals
	}
	h.w.account.reached(h.name, learned)
	return true
}

// explained reports whether a fault explains that a document is unavailable at a time.
func (h *serverHost) explained(at time.Time) bool {
	if h.w.config.Destructive {
		return true
	}
	compacted := h.w.hasCompacted()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.diskFaults > 0 || h.mu.doubted.Add(doubtTime).After(at) {
		return true
	}
	if at.Sub(h.mu.brief) > doubtTime {
		h.mu.brief = at
	}
	return compacted && at.Sub(h.mu.brief) < briefTime
}

// briefTime is the time, once a minute at most, for which a server that is ready may answer that ids are
// unavailable although no fault explains it: it reads a rewrite with entries that it had not read
// before, and then those that superseded the ones left out. A column stays ready meanwhile.
const briefTime = time.Second

// doubtTime is the time after a fault for which documents may be unavailable: damaged files are
// fetched again, a damaged index is built again.
const doubtTime = time.Minute

func (c *client) batch(ids []string) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	before := make([]bool, len(ids))
	for i, id := range ids {
		before[i] = c.serves(id)
	}
	incomplete := c.incomplete()
	q := c.question()
	err := c.client.GetMany(ctx, ids, func(i int, document []byte, err error) error {
		c.judge(q, before[i], incomplete, ids[i], document, err)
		return nil
	})
	if err != nil {
		c.failed(q, batchOf(ids), err)
	}
}

// batchOf describes a batch.
func batchOf(ids []string) string { return fmt.Sprintf("a batch of %d ids", len(ids)) }

// page asks for a page of ids.
func (c *client) page(after string) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	c.serves(after)
	q := c.w.account.ask(c.servers...)
	q.whole = c.w.isWhole()
	var ids []string
	next, err := c.client.Scan(ctx, docservice.ScanOptions{After: []byte(after), Limit: pageIDs, IDsOnly: true}, func(id string, _ []byte, _ error) error {
		ids = append(ids, id)
		return nil
	})
	if err != nil {
		c.failed(q, "a page", err)
		return
	}
	c.w.account.listed(q, after, string(next), ids)
}
