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
	"docstore/internal/ctxtime"
	"docstore/internal/simulate/chance"
)

const (
	// callTime bounds a request of a client.
	callTime = 2 * time.Second
	// batchIDs is the most ids of a batch.
	batchIDs = 30
	pageIDs  = 50
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
	pool    *boxcarrpc.Pool
	client  *docservice.Client
	single  *serverHost // the only server; nil: there are several
}

func (w *world) newClient(name string, hosts ...*serverHost) (*client, error) {
	c := &client{w: w, name: name}
	var addresses []string
	for _, h := range hosts {
		c.servers, addresses = append(c.servers, h.name), append(addresses, h.boxcar())
	}
	if len(hosts) == 1 {
		c.single = hosts[0]
	}
	var err error
	c.pool, err = boxcarrpc.NewPool(discovery.Static(addresses...), &boxcarrpc.PoolOptions{
		Size: 4, Insecure: true, Methods: docservice.IdempotentMethods(), Dialer: w.dialer(), Name: name, CallTimeout: callTime, Seed: w.config.Seed,
	})
	if err != nil {
		return nil, err
	}
	c.client = docservice.NewClient(c.pool, collectionName)
	return c, nil
}

// ask sends random requests until ctx ends.
func (c *client) ask(ctx context.Context) {
	for ctx.Err() == nil {
		d := c.w.chance.Next("ask " + c.name)
		c.one(&d)
		if !ctxtime.Sleep(ctx, d.Duration(20*time.Millisecond, time.Second)) {
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
		c.page(c.randomID(d))
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
	before := c.readiness()
	q := c.w.account.ask(c.servers...)
	document, err := c.client.Get(ctx, nil, id)
	c.judge(q, before, id, document, err)
}

// judge judges the answer for an id.
func (c *client) judge(q question, before bool, id string, document []byte, err error) {
	a := c.w.account
	switch {
	case err == nil:
		a.found(q, id, document)
	case errors.Is(err, docservice.ErrNotFound):
		a.missing(q, id)
	case errors.Is(err, docservice.ErrUnavailable):
		a.other("unavailable")
		if before && c.readiness() && c.single != nil && !c.single.explained(q.began) {
			a.wrongf("ready", "%s is ready, and %s is unavailable: %v", c.single.name, id, err)
		}
	default:
		a.other("error")
	}
}

// readiness reports whether the only server is ready. A server that is ready commits to its goals.
func (c *client) readiness() bool { return c.single != nil && c.single.observe() }

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
	before := c.readiness()
	q := c.w.account.ask(c.servers...)
	b, err := c.client.FetchBatch(ctx, ids)
	if err != nil {
		c.w.account.other("error")
		return
	}
	defer b.Release()
	for i, id := range ids[:min(len(ids), b.Len())] {
		document, err := b.Document(ctx, i)
		c.judge(q, before, id, document, err)
	}
}

// page asks for a page of ids.
func (c *client) page(after string) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	c.readiness()
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
	before := c.readiness()
	q := c.w.account.ask(c.servers...)
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
	c.judge(q, before, id, document, err)
}
