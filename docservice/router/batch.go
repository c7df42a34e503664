package router

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/budget"
	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/internal/wire"
	"docstore/docservice/sharded"
	"docstore/queue/codec"
	"docstore/queue/shard"
)

// batch is a GetMany that is passed on in part.
type batch struct {
	client     *sharded.Client
	layout     shard.Layout
	collection string
	ids        [][]byte
	accept     codec.Set

	mu      sync.Mutex
	answers []collection.Answer // by index of the id
	known   []bool              // likewise: other servers need not be asked
}

// GetMany implements collection.Router.
func (r *Router) GetMany(ctx context.Context, name []byte, ids [][]byte, accept codec.Set, dst []byte, to collection.Receiver) (_ []byte, answered int, err error) {
	client := r.client(name)
	if client == nil {
		return r.service.GetMany(ctx, name, ids, accept, dst, to)
	}
	placement := client.Placement()
	if placement == nil {
		out, n, err := r.service.GetMany(ctx, name, ids, accept, dst, to)
		if errors.Is(err, docservice.ErrNoCollection) { // see others
			err = sharded.ErrNoPlacement
		}
		return out, n, err
	}
	var list collection.Answers
	here, n, err := r.service.GetMany(ctx, name, ids, accept, nil, &list)
	if err != nil && r.others(name, err) == nil {
		return dst, 0, err
	}
	b := &batch{client: client, layout: placement.Layout, collection: string(name), ids: ids, accept: accept,
		answers: make([]collection.Answer, len(ids)), known: make([]bool, len(ids))}
	if err == nil {
		for i, a := range list.First(n, here, 0) {
			_ = b.set(i, a) // the others are asked
		}
	}
	if missing := b.missing(); len(missing) > 0 {
		err = r.forward(ctx, func() error {
			limited, cancel := context.WithTimeout(ctx, r.timeout)
			defer cancel()
			b.ask(limited, func(i int) string { return placement.Shards[i].Column }, false)
			// The rest are shards that have moved during the call, or documents that a server
			// cannot read: one call for each shard.
			b.ask(limited, func(i int) string { return shard.Name(b.collection, i) }, true)
			return ctx.Err()
		})
		if err != nil {
			return dst, 0, err
		}
	}
	total := 0
	for _, a := range b.answers {
		total += len(a.Document)
	}
	budget.Hold(ctx, total)
	dst, answered = collection.Deliver(dst, len(ids), to, func(i int) (collection.Answer, bool) {
		if !b.known[i] {
			return collection.Answer{Err: collection.ErrShardAbsent}, true
		}
		return b.answers[i], true
	})
	return dst, answered, nil
}

// missing returns the indexes of the ids without an answer.
func (b *batch) missing() []int {
	var indexes []int
	for i, known := range b.known {
		if !known {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// set records the answer for the id with an index, unless another server can give a better
// one: then it returns docservice.ErrMoved or docservice.ErrUnavailable.
func (b *batch) set(i int, a collection.Answer) error {
	if err := elsewhere(a.Status()); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answers[i], b.known[i] = a, true
	return nil
}

// ask passes on the ids without an answer: one call for those whose shards have the same
// group, all at once. With search it asks the servers of all columns that may have them.
func (b *batch) ask(ctx context.Context, group func(shard int) string, search bool) {
	groups := map[string][]int{}
	for _, i := range b.missing() {
		name := group(b.layout.Shard(b.ids[i]))
		groups[name] = append(groups[name], i)
	}
	var running sync.WaitGroup
	for _, indexes := range groups {
		running.Go(func() {
			for len(indexes) > 0 {
				n, err := b.askSome(ctx, indexes, search)
				if err != nil {
					return // they are unavailable
				}
				indexes = indexes[n:]
			}
		})
	}
	running.Wait()
}

// askSome passes on the ids with the given indexes, and returns the number of the first that
// fit into the response.
func (b *batch) askSome(ctx context.Context, indexes []int, search bool) (n int, err error) {
	request := wire.AppendCollection(nil, b.collection)
	for _, i := range indexes {
		request = wire.AppendID(request, string(b.ids[i]))
	}
	request = wire.AppendAccept(request, b.accept)
	err = b.client.OnShard(ctx, b.layout.Shard(b.ids[indexes[0]]), func(pool *boxcarrpc.Pool, info *boxcarrpc.CallInfo) error {
		out, err := pool.CallWith(ctx, docservice.MethodBatchGet, request, nil, info)
		if err != nil {
			return clientError(err)
		}
		n = 0
		var others error // why another server shall be asked
		leftOut, err := wire.DecodeBatchGetResponse(out, func(a wire.Answer) error {
			if n < len(indexes) {
				if err := b.set(indexes[n], answerOf(a, b.ids[indexes[n]], b.accept)); err != nil && !errors.Is(others, docservice.ErrMoved) {
					others = err
				}
			}
			n++
			return nil
		})
		if err == nil && (n == 0 || n+int(leftOut) != len(indexes)) {
			err = fmt.Errorf("%w: %d answers and %d left out for %d ids", docservice.ErrMalformed, n, leftOut, len(indexes))
		}
		if err == nil && search {
			err = others
		}
		return err
	})
	return n, err
}

// answerOf returns the answer of another server to a request for an id.
func answerOf(a wire.Answer, id []byte, accept codec.Set) collection.Answer {
	err := docservice.StatusError(a.Status, string(id))
	switch {
	case err != nil:
		return collection.Answer{Err: err}
	case a.Stored != nil:
		return collection.Answer{Document: a.Stored, AsStored: true}
	case a.Document == nil && accept != 0: // even an empty document has a stored form
		return collection.Answer{Err: fmt.Errorf("%w: the answer says found, but has no document", docservice.ErrMalformed)}
	}
	return collection.Answer{Document: a.Document}
}
