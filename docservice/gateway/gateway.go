package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/core"
	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/docservicepb"
	"docstore/docservice/sharded"
)

const (
	// MaxForwards is the maximum number of requests that are passed on at the same time. Batch
	// requests leave a quarter of it to others.
	MaxForwards = 1024
	// ColumnTimeout is the time within which the other columns answer a request. The part of
	// a batch that they have not answered then is unavailable.
	ColumnTimeout = 4 * time.Second
)

// Gateway answers requests for sharded collections.
type Gateway struct {
	service *collection.Service
	slots   chan struct{}
	timeout time.Duration // ColumnTimeout
	counts  struct{ forwarded, refused, failed atomic.Uint64 }

	mu struct {
		sync.RWMutex
		clients map[string]*sharded.Client
	}
}

// New returns a Gateway to the collections of a service.
func New(service *collection.Service) *Gateway {
	g := &Gateway{service: service, slots: make(chan struct{}, MaxForwards), timeout: ColumnTimeout}
	g.mu.clients = map[string]*sharded.Client{}
	return g
}

// Add passes on requests for a collection to a client, which the caller closes after the
// listeners.
func (g *Gateway) Add(collection string, client *sharded.Client) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.clients[collection] = client
}

// client returns the client of a collection, nil if it is not sharded.
func (g *Gateway) client(collection string) *sharded.Client {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.mu.clients[collection]
}

// sharded reports whether any collection is.
func (g *Gateway) sharded() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.mu.clients) > 0
}

// Stats are the counters of a Gateway.
type Stats struct {
	Forwarded uint64 // requests passed on
	Refused   uint64 // above MaxForwards
	Failed    uint64 // requests passed on that failed
}

// Stats returns the counters.
func (g *Gateway) Stats() Stats {
	return Stats{Forwarded: g.counts.forwarded.Load(), Refused: g.counts.refused.Load(), Failed: g.counts.failed.Load()}
}

// Handle is a boxcarrpc.Handler.
func (g *Gateway) Handle(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
	if !g.sharded() {
		return g.service.Handle(ctx, method, request, dst)
	}
	switch method {
	case docservice.MethodGet:
		return g.get(ctx, request, dst)
	case docservice.MethodBatchGet:
		return g.batchGet(ctx, request, dst)
	case docservice.MethodDictionary:
		return g.dictionary(ctx, request, dst)
	case docservice.MethodScan:
		return g.scan(ctx, request, dst)
	case docservice.MethodStats:
		return g.stats(ctx, request, dst)
	}
	return g.service.Handle(ctx, method, request, dst)
}

// forward runs f, which passes on a request.
func (g *Gateway) forward(ctx context.Context, f func() error) error {
	slots := g.slots
	if boxcarrpc.IsBatch(ctx) && len(slots) >= cap(slots)-core.Reserve(cap(slots)) {
		slots = nil // without a lock: a few that begin at once may pass
	}
	select {
	case slots <- struct{}{}:
	default:
		g.counts.refused.Add(1)
		return boxcarrpc.NotProcessed(&boxcarrpc.Error{
			Code: boxcarrpc.CodeResourceExhausted, Message: fmt.Sprintf("gateway: %d requests are being passed on to other servers, the maximum; retry", MaxForwards),
		})
	}
	defer func() { <-g.slots }()
	g.counts.forwarded.Add(1)
	return f()
}

// result returns the error of a request that was passed on as that of a handler, and counts
// it.
func (g *Gateway) result(err error) error {
	if err != nil {
		g.counts.failed.Add(1)
	}
	return handlerError(err)
}

// maxStatusBytes is at least the size of a GetResponse without a document.
const maxStatusBytes = 16

// elsewhere returns docservice.ErrMoved or docservice.ErrUnavailable if a GetResponse says
// that other servers may have the document.
func elsewhere(response []byte) error {
	if len(response) > maxStatusBytes {
		return nil
	}
	var r docservicepb.GetResponse
	_ = proto.Unmarshal(response, &r) // the client reports a malformed response
	switch r.GetStatus() {
	case docservicepb.Status_STATUS_MOVED:
		return docservice.ErrMoved
	case docservicepb.Status_STATUS_UNAVAILABLE:
		return docservice.ErrUnavailable
	}
	return nil
}

func (g *Gateway) get(ctx context.Context, request, dst []byte) ([]byte, error) {
	out, err := g.service.Handle(ctx, docservice.MethodGet, request, dst)
	switch {
	case err == nil && elsewhere(out[len(dst):]) == nil, err != nil && boxcarrpc.CodeOf(err) != boxcarrpc.CodeUnavailable:
		return out, err
	}
	var asked docservicepb.GetRequest
	if err := proto.Unmarshal(request, &asked); err != nil {
		return dst, malformed(err)
	}
	client := g.client(asked.GetCollection())
	if client == nil {
		return out, err
	}
	i, known := shardOf(client, asked.GetId())
	if !known {
		return dst, handlerError(sharded.ErrNoPlacement)
	}
	err = g.forward(ctx, func() error {
		limited, cancel := context.WithTimeout(ctx, g.timeout)
		defer cancel()
		return client.OnShard(limited, i, func(pool *boxcarrpc.Pool, info *boxcarrpc.CallInfo) (err error) {
			if out, err = pool.CallWith(limited, docservice.MethodGet, request, dst, info); err != nil {
				return clientError(err)
			}
			return elsewhere(out[len(dst):])
		})
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("%w: the column of the shard does not answer: %w", docservice.ErrUnavailable, err)
	}
	if err != nil {
		return dst, g.result(err)
	}
	return out, nil
}

// dictionary asks a server of each column for a dictionary that this server does not have.
func (g *Gateway) dictionary(ctx context.Context, request, dst []byte) ([]byte, error) {
	out, err := g.service.Handle(ctx, docservice.MethodDictionary, request, dst)
	if err == nil || boxcarrpc.CodeOf(err) != boxcarrpc.CodeUnavailable {
		return out, err
	}
	var asked docservicepb.DictionaryRequest
	if err := proto.Unmarshal(request, &asked); err != nil {
		return dst, malformed(err)
	}
	client := g.client(asked.GetCollection())
	if client == nil {
		return out, err
	}
	for i := range firstShards(client) {
		failed := g.forward(ctx, func() error {
			limited, cancel := context.WithTimeout(ctx, g.timeout)
			defer cancel()
			return client.OnShard(limited, i, func(pool *boxcarrpc.Pool, _ *boxcarrpc.CallInfo) (err error) {
				out, err = pool.Call(limited, docservice.MethodDictionary, request, dst)
				return err // another attempt would not find it
			})
		})
		if failed == nil {
			return out, nil
		}
	}
	return dst, err
}

// scan answers for a sharded collection with the documents of all shards, decoded.
func (g *Gateway) scan(ctx context.Context, request, dst []byte) ([]byte, error) {
	var asked docservicepb.ScanRequest
	if err := proto.Unmarshal(request, &asked); err != nil {
		return dst, malformed(err)
	}
	client := g.client(asked.GetCollection())
	if client == nil {
		return g.service.Handle(ctx, docservice.MethodScan, request, dst)
	}
	if err := g.service.Allowed(ctx, []byte(asked.GetCollection())); err != nil {
		return dst, &boxcarrpc.Error{Code: boxcarrpc.CodePermissionDenied, Message: err.Error(), Processed: true}
	}
	if asked.GetLimit() > docservice.MaxScanIDs {
		return dst, malformed(fmt.Errorf("limit %d exceeds %d", asked.GetLimit(), docservice.MaxScanIDs))
	}
	o := docservice.ScanOptions{Prefix: asked.GetPrefix(), After: asked.GetAfter(), Limit: int(asked.GetLimit()), IDsOnly: asked.GetIdsOnly()}
	response := &docservicepb.ScanResponse{}
	page := page{response: response}
	err := g.forward(ctx, func() error {
		next, err := client.Scan(ctx, o, page.add)
		switch {
		case errors.Is(err, errPageFull):
			response.Next = page.last
		case err != nil:
			return err
		default:
			response.Next = next
		}
		return nil
	})
	if err != nil {
		return dst, g.result(err)
	}
	budget.Hold(ctx, page.bytes)
	return marshal(dst, response)
}

// errPageFull ends a scan at the first entry that does not fit.
var errPageFull = errors.New("gateway: the page is full")

// page is a ScanResponse in progress.
type page struct {
	response *docservicepb.ScanResponse
	bytes    int
	last     []byte
}

// entryBytes is at least the size of an entry without its id and document, and a part of
// the id at the end of the page.
const entryBytes = 32

func (p *page) add(id string, document []byte, err error) error {
	size := 2*len(id) + len(document) + entryBytes
	if len(p.response.GetEntries()) > 0 && p.bytes+size > docservice.MaxReplyBytes {
		return errPageFull
	}
	p.bytes += size
	p.last = []byte(id)
	entry := &docservicepb.ScanResponse_Entry{Id: p.last, Status: statusOf(err)}
	if err == nil {
		entry.Document = append([]byte{}, document...)
	}
	p.response.Entries = append(p.response.Entries, entry)
	return nil
}

// stats sums the statistics of all shards.
func (g *Gateway) stats(ctx context.Context, request, dst []byte) ([]byte, error) {
	var asked docservicepb.StatsRequest
	if err := proto.Unmarshal(request, &asked); err != nil {
		return dst, malformed(err)
	}
	client := g.client(asked.GetCollection())
	if client == nil {
		return g.service.Handle(ctx, docservice.MethodStats, request, dst)
	}
	if err := g.service.Allowed(ctx, []byte(asked.GetCollection())); err != nil {
		return dst, &boxcarrpc.Error{Code: boxcarrpc.CodePermissionDenied, Message: err.Error(), Processed: true}
	}
	response := &docservicepb.StatsResponse{}
	err := g.forward(ctx, func() error {
		sum, err := client.Stats(ctx)
		response.Collections = []*docservicepb.CollectionStats{sum}
		return err
	})
	if err != nil {
		return dst, g.result(err)
	}
	return marshal(dst, response)
}

// shardOf returns the shard of an id in the current placement.
func shardOf(client *sharded.Client, id []byte) (i int, known bool) {
	m := client.Placement()
	if m == nil {
		return 0, false
	}
	return m.Layout.Shard(id), true
}

// firstShards returns a shard of each column.
func firstShards(client *sharded.Client) map[int]string {
	shards, seen := map[int]string{}, map[string]bool{}
	m := client.Placement()
	if m == nil {
		return nil
	}
	for i, p := range m.Shards {
		if !seen[p.Column] {
			seen[p.Column] = true
			shards[i] = p.Column
		}
	}
	return shards
}

func marshal(dst []byte, response proto.Message) ([]byte, error) {
	out, err := proto.MarshalOptions{}.MarshalAppend(dst, response)
	if err != nil {
		return dst, handlerError(err)
	}
	return out, nil
}
