package router

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/core"
	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/docservicepb"
	"docstore/docservice/internal/wire"
	"docstore/docservice/sharded"
	"docstore/queue/codec"
)

const (
	// MaxForwards is the maximum number of requests that are passed on at the same time. Batch
	// requests leave a quarter of it to others.
	MaxForwards = 1024
	// ColumnTimeout is the time within which the other columns answer a request. The part of
	// a batch that they have not answered then is unavailable.
	ColumnTimeout = 4 * time.Second
)

// Router is a collection.Router.
type Router struct {
	service *collection.Service
	slots   chan struct{}
	timeout time.Duration // ColumnTimeout
	counts  struct{ forwarded, refused, failed atomic.Uint64 }

	mu struct {
		sync.RWMutex
		clients map[string]*sharded.Client
	}
}

var _ collection.Router = (*Router)(nil)

// New returns a Router to the collections of a service.
func New(service *collection.Service) *Router {
	r := &Router{service: service, slots: make(chan struct{}, MaxForwards), timeout: ColumnTimeout}
	r.mu.clients = map[string]*sharded.Client{}
	return r
}

// Add passes on requests for a collection to a client, which the caller closes after the
// listeners.
func (r *Router) Add(collection string, client *sharded.Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.clients[collection] = client
}

// client returns the client of a collection, nil if all of it is in this process.
func (r *Router) client(collection []byte) *sharded.Client {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.mu.clients[string(collection)]
}

// Forwards counts requests.
type Forwards struct {
	Forwarded uint64 // passed on
	Refused   uint64 // above MaxForwards
	Failed    uint64 // passed on, and failed
}

// Forwards returns the counters.
func (r *Router) Forwards() Forwards {
	return Forwards{Forwarded: r.counts.forwarded.Load(), Refused: r.counts.refused.Load(), Failed: r.counts.failed.Load()}
}

// Handle is a boxcarrpc.Handler for listeners whose clients do not know the placement.
func (r *Router) Handle(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
	return collection.Handle(ctx, r, method, request, dst)
}

// forward runs f, which passes on a request.
func (r *Router) forward(ctx context.Context, f func() error) error {
	slots := r.slots
	if boxcarrpc.IsBatch(ctx) && len(slots) >= cap(slots)-core.Reserve(cap(slots)) {
		slots = nil // without a lock: a few that begin at once may pass
	}
	select {
	case slots <- struct{}{}:
	default:
		r.counts.refused.Add(1)
		return boxcarrpc.NotProcessed(&boxcarrpc.Error{
			Code: boxcarrpc.CodeResourceExhausted, Message: fmt.Sprintf("router: %d requests are being passed on to other servers, the maximum; retry", MaxForwards),
		})
	}
	defer func() { <-r.slots }()
	r.counts.forwarded.Add(1)
	err := f()
	if err != nil {
		r.counts.failed.Add(1)
	}
	return err
}

// others returns the client for a request that this process has answered with err, nil if
// no other server can answer it. A service without a placement does not know the collections of
// its shards.
func (r *Router) others(collection []byte, err error) *sharded.Client {
	if !errors.Is(err, docservice.ErrMoved) && !errors.Is(err, docservice.ErrUnavailable) && !errors.Is(err, docservice.ErrNoCollection) {
		return nil
	}
	return r.client(collection)
}

// Get implements collection.Router.
func (r *Router) Get(ctx context.Context, collection, id []byte, accept codec.Set, dst []byte) (_ []byte, asStored bool, err error) {
	out, asStored, err := r.service.Get(ctx, collection, id, accept, dst)
	if err == nil {
		return out, asStored, nil
	}
	client := r.others(collection, err)
	if client == nil {
		return dst, false, err
	}
	return r.getElsewhere(ctx, client, collection, id, accept, dst)
}

// getElsewhere is Get by the servers that hold the shard.
func (r *Router) getElsewhere(ctx context.Context, client *sharded.Client, collection, id []byte, accept codec.Set, dst []byte) (out []byte, asStored bool, err error) {
	placement := client.Placement()
	if placement == nil {
		return dst, false, sharded.ErrNoPlacement
	}
	request := wire.AppendAccept(wire.AppendID(wire.AppendCollection(nil, string(collection)), string(id)), accept)
	var answer wire.Answer
	err = r.forward(ctx, func() error {
		limited, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		err := client.OnShard(limited, placement.Layout.Shard(id), func(pool *boxcarrpc.Pool, info *boxcarrpc.CallInfo) (err error) {
			if out, err = pool.CallWith(limited, docservice.MethodGet, request, dst, info); err != nil {
				return clientError(err)
			}
			if answer, err = wire.DecodeAnswer(out[len(dst):]); err != nil {
				return err
			}
			return elsewhere(answer.Status)
		})
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = fmt.Errorf("%w: the column of the shard does not answer: %w", docservice.ErrUnavailable, err)
		}
		return err
	})
	if err != nil {
		return dst, false, err
	}
	a := answerOf(answer, id, accept)
	if a.Err != nil {
		return dst, false, a.Err
	}
	// The document is part of the appended bytes: move it to the front.
	return out[:len(dst)+copy(out[len(dst):], a.Document)], a.AsStored, nil
}

// elsewhere returns an error for an answer that other servers may give.
func elsewhere(status docservicepb.Status) error {
	switch status {
	case docservicepb.Status_STATUS_MOVED:
		return docservice.ErrMoved
	case docservicepb.Status_STATUS_UNAVAILABLE:
		return docservice.ErrUnavailable
	}
	return nil
}

// Dictionary implements collection.Router: it asks a server of each column for a dictionary
// that this process does not have.
func (r *Router) Dictionary(ctx context.Context, collection []byte, hash codec.DictionaryHash) ([]byte, error) {
	content, err := r.service.Dictionary(ctx, collection, hash)
	if err == nil {
		return content, nil
	}
	client := r.others(collection, err)
	if client == nil {
		return nil, err
	}
	request, failed := proto.Marshal(&docservicepb.DictionaryRequest{Collection: string(collection), Hash: hash[:]})
	if failed != nil {
		return nil, failed
	}
	for i := range firstShards(client) {
		var response docservicepb.DictionaryResponse
		failed := r.forward(ctx, func() error {
			limited, cancel := context.WithTimeout(ctx, r.timeout)
			defer cancel()
			return client.OnShard(limited, i, func(pool *boxcarrpc.Pool, _ *boxcarrpc.CallInfo) error {
				body, err := pool.Call(limited, docservice.MethodDictionary, request, nil)
				if err != nil {
					return err // another attempt would not find it
				}
				return proto.Unmarshal(body, &response)
			})
		})
		if failed == nil {
			return response.GetDictionary(), nil
		}
	}
	return nil, err
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

// Scan implements collection.Router. A list of several shards is not of one moment: it is read
// page by page, with decoded documents.
func (r *Router) Scan(ctx context.Context, name []byte, o docservice.ScanOptions, accept codec.Set, fn func(id []byte, answer collection.Answer) error) error {
	client := r.client(name)
	if client == nil {
		return r.service.Scan(ctx, name, o, accept, fn)
	}
	if err := r.service.Allowed(ctx, name); err != nil {
		return err
	}
	var stopped error // by fn
	limit, seen := o.Limit, 0
	err := r.forward(ctx, func() error {
		for {
			o.Limit = docservice.DefaultScanIDs
			if limit > 0 {
				o.Limit = min(docservice.MaxScanIDs, limit-seen)
			}
			next, err := client.Scan(ctx, o, func(id string, document []byte, err error) error {
				seen++
				if errors.Is(err, docservice.ErrMoved) {
					err = docservice.ErrUnavailable // to clients, the collection is all here
				}
				stopped = fn([]byte(id), collection.Answer{Document: document, Err: err})
				return stopped
			})
			if stopped != nil {
				return nil //nolint:nilerr // it is not that of the servers
			}
			if err != nil || next == nil || limit > 0 && seen >= limit {
				return err
			}
			o.After = next
		}
	})
	if stopped != nil {
		return stopped
	}
	return err
}

// Stats implements collection.Router: it sums the statistics of all shards.
func (r *Router) Stats(ctx context.Context, collection string) (list []*docservicepb.CollectionStats, err error) {
	client := r.client([]byte(collection))
	if client == nil {
		return r.service.Stats(ctx, collection)
	}
	if err := r.service.Allowed(ctx, []byte(collection)); err != nil {
		return nil, err
	}
	err = r.forward(ctx, func() error {
		sum, err := client.Stats(ctx)
		list = []*docservicepb.CollectionStats{sum}
		return err
	})
	return list, err
}

// clientError returns the error of a call so that a sharded.Client asks other servers if
// they may answer.
func clientError(err error) error {
	switch boxcarrpc.CodeOf(err) {
	case boxcarrpc.CodeUnavailable:
		return fmt.Errorf("%w: %w", docservice.ErrUnavailable, err)
	case boxcarrpc.CodeNotFound:
		return fmt.Errorf("%w: %w", docservice.ErrNoCollection, err)
	}
	return err
}
