package gateway

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/budget"
	"docstore/docservice"
	"docstore/docservice/docservicepb"
	"docstore/docservice/sharded"
	"docstore/queue/shard"
)

// batch is a BatchGet that is passed on in part.
type batch struct {
	client  *sharded.Client
	layout  shard.Layout
	asked   *docservicepb.BatchGetRequest
	answers []*docservicepb.BatchGetResponse_Answer // by index of the id; nil: not answered
	mu      sync.Mutex
}

func (g *Gateway) batchGet(ctx context.Context, request, dst []byte) ([]byte, error) {
	out, err := g.service.Handle(ctx, docservice.MethodBatchGet, request, dst)
	if err != nil && boxcarrpc.CodeOf(err) != boxcarrpc.CodeUnavailable {
		return out, err
	}
	asked := &docservicepb.BatchGetRequest{}
	if err := proto.Unmarshal(request, asked); err != nil {
		return dst, malformed(err)
	}
	client := g.client(asked.GetCollection())
	if client == nil || len(asked.GetIds()) == 0 {
		return out, err
	}
	placement := client.Placement()
	if placement == nil {
		return out, err
	}
	b := &batch{client: client, layout: placement.Layout, asked: asked, answers: make([]*docservicepb.BatchGetResponse_Answer, len(asked.GetIds()))}
	if err == nil {
		var here docservicepb.BatchGetResponse
		if err := proto.Unmarshal(out[len(dst):], &here); err != nil {
			return dst, handlerError(err)
		}
		_ = b.set(nil, here.GetAnswers()) // the others are asked
	}
	if len(b.missing()) == 0 {
		return out, err
	}
	err = g.forward(ctx, func() error {
		limited, cancel := context.WithTimeout(ctx, g.timeout)
		defer cancel()
		b.ask(limited, func(i int) string { return placement.Shards[i].Column }, false)
		// The rest are shards that have moved during the call, or documents that a server
		// cannot read: one call for each shard.
		b.ask(limited, func(i int) string { return shard.Name(asked.GetCollection(), i) }, true)
		return ctx.Err()
	})
	if err != nil {
		return dst, g.result(err)
	}
	response := b.response()
	budget.Hold(ctx, proto.Size(response))
	return marshal(dst, response)
}

// missing returns the indexes of the ids without an answer.
func (b *batch) missing() []int {
	var indexes []int
	for i, a := range b.answers {
		if a == nil {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// set records answers for the ids with the given indexes, nil for all, except those that
// another server can give. Its error is that of such an id: docservice.ErrMoved if there is
// one, or docservice.ErrUnavailable.
func (b *batch) set(indexes []int, answers []*docservicepb.BatchGetResponse_Answer) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, a := range answers {
		i := n
		if indexes != nil {
			i = indexes[n]
		}
		switch a.GetStatus() {
		case docservicepb.Status_STATUS_MOVED:
			err = docservice.ErrMoved
		case docservicepb.Status_STATUS_UNAVAILABLE:
			if err == nil {
				err = docservice.ErrUnavailable
			}
		default:
			b.answers[i] = a
		}
	}
	return err
}

// ask passes on the ids without an answer: one call for those whose shards have the same
// group, all at once. With search it asks the servers of all columns that may have them.
func (b *batch) ask(ctx context.Context, group func(shard int) string, search bool) {
	groups := map[string][]int{}
	for _, i := range b.missing() {
		name := group(b.layout.Shard(b.asked.GetIds()[i]))
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
	request := &docservicepb.BatchGetRequest{Collection: b.asked.GetCollection(), Accept: b.asked.GetAccept()}
	for _, i := range indexes {
		request.Ids = append(request.Ids, b.asked.GetIds()[i])
	}
	body, err := proto.Marshal(request)
	if err != nil {
		return 0, err
	}
	err = b.client.OnShard(ctx, b.layout.Shard(request.GetIds()[0]), func(pool *boxcarrpc.Pool, info *boxcarrpc.CallInfo) error {
		out, err := pool.CallWith(ctx, docservice.MethodBatchGet, body, nil, info)
		if err != nil {
			return clientError(err)
		}
		var response docservicepb.BatchGetResponse
		if err := proto.Unmarshal(out, &response); err != nil {
			return err
		}
		if n = len(response.GetAnswers()); n == 0 || n+int(response.GetLeftOut()) != len(indexes) {
			return fmt.Errorf("%w: %d answers and %d left out for %d ids", docservice.ErrMalformed, n, response.GetLeftOut(), len(indexes))
		}
		if err := b.set(indexes, response.GetAnswers()); search {
			return err
		}
		return nil
	})
	return n, err
}

// response returns the answers of the first ids, at least one, that fit.
func (b *batch) response() *docservicepb.BatchGetResponse {
	limit := docservice.MaxReplyBytes - 2*protowireOverhead
	response, total := &docservicepb.BatchGetResponse{}, 0
	for i, a := range b.answers {
		if a == nil {
			a = &docservicepb.BatchGetResponse_Answer{Status: docservicepb.Status_STATUS_UNAVAILABLE}
		}
		size := proto.Size(a) + protowireOverhead
		if i > 0 && total+size > limit {
			response.LeftOut = uint32(len(b.answers) - i)
			break
		}
		total += size
		response.Answers = append(response.Answers, a)
	}
	return response
}

// protowireOverhead is at least the size of a tag and a length.
var protowireOverhead = protowire.SizeTag(1) + protowire.SizeVarint(docservice.MaxReplyBytes)
