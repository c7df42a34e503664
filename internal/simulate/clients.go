package simulate

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
	"docstore/docservice/placement/etcdmap"
	"docstore/docservice/sharded/etcdclient"
	"docstore/internal/ctxtime"
	"docstore/internal/simulate/chance"
	"docstore/queue/shard"
)

const (
	// callTime bounds a request of a client.
	callTime = 2 * time.Second
	// batchIDs is the most ids of a batch.
	batchIDs = 30
	pageIDs  = 50
	// poolSize is more than the calls of a list of several shards at a time.
	poolSize = 16
)

func itoa(n int) string { return strconv.Itoa(n) }

// dialer returns the dialer of the clients.
func (w *world) dialer() func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		return w.clients.Dial(ctx, "tcp", address)
	}
}

// client asks servers by Boxcar, and judges each answer.
type client struct {
	w       *world
	name    string
	servers []string // names
	client  documents
	close   func() error
	single  *serverHost // the only server; nil: there are several
}

// documents is the client of one pool, or of several columns.
type documents interface {
	Get(ctx context.Context, dst []byte, id string) ([]byte, error)
	GetMany(ctx context.Context, ids []string, fn func(i int, document []byte, err error) error) error
	Scan(ctx context.Context, o docservice.ScanOptions, fn func(id string, document []byte, err error) error) (next []byte, err error)
}

// newClient returns a client of one server, or of all if single is nil.
func (w *world) newClient(single *serverHost) (*client, error) {
	c := &client{w: w, name: "client of all", single: single}
	hosts := w.servers
	if single != nil {
		c.name, hosts = "client of "+single.name, []*serverHost{single}
	}
	var addresses []string
	for _, h := range hosts {
		c.servers, addresses = append(c.servers, h.name), append(addresses, h.boxcar())
	}
	options := boxcarrpc.PoolOptions{
		Size: poolSize, Insecure: true, Methods: docservice.IdempotentMethods(), Dialer: w.dialer(), Name: c.name, CallTimeout: callTime, Seed: w.config.Seed,
	}
	if w.etcd != nil && c.single == nil {
		columns, err := etcdclient.Open(w.etcdAddress(), collectionName, &etcdclient.Options{Pool: options, Store: etcdmap.Options{Dial: w.clients.Dial}})
		if err != nil {
			return nil, err
		}
		c.client, c.close = columns, columns.Close
		return c, nil
	}
	pool, err := boxcarrpc.NewPool(discovery.Static(addresses...), &options)
	if err != nil {
		return nil, err
	}
	c.client, c.close = docservice.NewClient(pool, collectionName), pool.Close
	return c, nil
}

// ask sends random requests until ctx ends.
func (c *client) ask(ctx context.Context) {
	for ctx.Err() == nil {
		d := c.w.chance.Next("ask " + c.name)
		c.one(&d)
		pause := d.Duration(20*time.Millisecond, time.Second)
		if c.single != nil && !c.single.isComplete() {
			pause /= 20 // a server that catches up may find ids missing
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
		ids := make([]string, 1+d.Int(batchIDs))
		for i := range ids {
			ids[i] = c.randomID(d)
		}
		c.batch(ids)
	case kind < 18:
		if c.w.etcd == nil || c.single == nil { // a server lists its shards only
			c.page(c.randomID(d))
		}
	default:
		if c.single != nil {
			c.overHTTP(c.randomID(d))
		}
	}
}

// randomID returns an id that was written, or rarely one that never is.
func (c *client) randomID(d *chance.Draw) string { return "doc-" + itoa(d.Int(c.w.config.IDs+2)) }

func (c *client) get(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	before, incomplete := c.serves(id), c.incomplete()
	q := c.w.account.ask(c.servers...)
	document, err := c.client.Get(ctx, nil, id)
	c.judge(q, before, incomplete, id, document, err)
}

// judge judges the answer for an id.
func (c *client) judge(q question, before bool, incomplete *serverProcess, id string, document []byte, err error) {
	a := c.w.account
	switch {
	case err == nil:
		a.found(q, id, document)
	case errors.Is(err, docservice.ErrNotFound):
		a.missing(q, id)
		if c.single != nil && incomplete == c.single.current() && incomplete != nil && !c.single.isComplete() {
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
		a.other("error")
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
	return h.w.etcd != nil || p.server.Readiness().Collections[collectionName].Ready
}

// incomplete returns the process of the only server if it is not complete, else nil.
func (c *client) incomplete() *serverProcess {
	if c.single == nil || c.single.isComplete() {
		return nil
	}
	return c.single.current()
}

// serves reports whether the only server is ready and serves the shard of an id. Shards that the
// placement assigns to a column later are unavailable until they are served.
func (c *client) serves(id string) bool {
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
	p := h.mu.process
	h.mu.Unlock()
	if p != nil && p.sure {
		h.w.account.reached(h.name, p.goals)
	}
	return true
}

// explained reports whether a fault explains that a document is unavailable at a time.
func (h *serverHost) explained(at time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.doubted.Add(doubtTime).After(at)
}

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
	q := c.w.account.ask(c.servers...)
	err := c.client.GetMany(ctx, ids, func(i int, document []byte, err error) error {
		c.judge(q, before[i], incomplete, ids[i], document, err)
		return nil
	})
	if err != nil {
		c.w.account.other("error")
	}
}

// page asks for a page of ids.
func (c *client) page(after string) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	c.serves(after)
	q := c.w.account.ask(c.servers...)
	var ids []string
	next, err := c.client.Scan(ctx, docservice.ScanOptions{After: []byte(after), Limit: pageIDs, IDsOnly: true}, func(id string, _ []byte, _ error) error {
		ids = append(ids, id)
		return nil
	})
	if err != nil {
		c.w.account.other("error")
		return
	}
	c.w.account.listed(q, after, string(next), ids)
}

// overHTTP gets a document over HTTP.
func (c *client) overHTTP(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	before, incomplete := c.serves(id), c.incomplete()
	q := c.w.account.ask(c.servers...)
	if c.w.etcd != nil { // it may be passed on
		before, incomplete, q = false, nil, c.w.account.ask(c.w.names()...)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.single.http()+"/documents/"+collectionName+"/"+url.PathEscape(id), http.NoBody)
	c.w.must(err)
	transport := &http.Transport{DialContext: c.w.clients.Dial, DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		c.w.account.other("error")
		return
	}
	document, err := io.ReadAll(response.Body)
	if closeErr := response.Body.Close(); err != nil || closeErr != nil {
		c.w.account.other("error")
		return
	}
	switch response.StatusCode {
	case http.StatusOK:
		err = nil
	case http.StatusNotFound:
		err = docservice.ErrNotFound
	case http.StatusServiceUnavailable:
		err = docservice.ErrUnavailable
	default:
		err = errors.New(response.Status)
	}
	c.judge(q, before, incomplete, id, document, err)
}
