package collection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/budget"
	"docstore/docservice"
	"docstore/docservice/docservicepb"
	"docstore/docservice/internal/wire"
	"docstore/queue/codec"
	"docstore/queue/shard"
)

// Service answers the calls of docstore.v1.Documents for several collections. It does not
// own them: the caller closes them after the server that calls Handle.
type Service struct {
	served  atomic.Pointer[served]
	adding  sync.Mutex
	tracer  Tracer                                             // nil: none
	allow   func(ctx context.Context, collection string) error // nil: everything is allowed
	scratch sync.Pool
}

// served is an immutable set of collections.
type served struct {
	byName  map[string]*Collection
	divided map[string]*shards
	list    []*Collection // by name
}

func (s *served) names() []string {
	names := make([]string, len(s.list))
	for i, c := range s.list {
		names[i] = c.Name()
	}
	return names
}

// batchScratch holds the buffers of a BatchGet.
type batchScratch struct {
	ids      [][]byte
	memory   batchMemory
	response batchResponse
	sharded  shardedBatch
}

// NewService returns a service for the collections, whose names must differ.
func NewService(collections ...*Collection) *Service {
	s := &Service{}
	s.scratch.New = func() any { return new(batchScratch) }
	s.served.Store(&served{})
	for _, c := range collections {
		s.Add(c)
	}
	return s
}

// Add adds a collection. It panics if another collection has the same name.
func (s *Service) Add(c *Collection) {
	s.change(func(after *served) {
		if after.byName[c.Name()] != nil {
			panic("docservice: two collections have the name " + c.Name())
		}
		after.byName[c.Name()] = c
	})
}

// Replace serves a collection instead of the one with the same name, or adds it if there
// is none. The caller closes the one that was replaced once the calls that use it have
// ended.
func (s *Service) Replace(c *Collection) {
	s.change(func(after *served) { after.byName[c.Name()] = c })
}

// Collections returns the collections ordered by name. The caller must not modify the
// slice.
func (s *Service) Collections() []*Collection { return s.served.Load().list }

// Authorize sets a function that is called with the collection of each request that Handle
// answers, before anything of the collection is read. Statistics of all collections are those
// of "*". Its error is that of the call. It must be called before the first request.
func (s *Service) Authorize(allow func(ctx context.Context, collection string) error) {
	s.allow = allow
}

// Allowed returns the error of a call whose client may not use a collection: see Authorize.
// Programs that answer requests in place of Handle call it.
func (s *Service) Allowed(ctx context.Context, collection string) error {
	return s.allowed(ctx, []byte(collection))
}

// allowed returns an error if the client of ctx may not use a collection.
func (s *Service) allowed(ctx context.Context, collection []byte) error {
	if s.allow == nil {
		return nil
	}
	if err := s.allow(ctx, string(collection)); err != nil {
		return &boxcarrpc.Error{Code: boxcarrpc.CodePermissionDenied, Message: err.Error(), Processed: true}
	}
	return nil
}

// allCollections stands for all collections in Authorize.
const allCollections = "*"

// Handle is a boxcarrpc.Handler: it appends the response to dst. Its errors are
// *boxcarrpc.Error; on error it returns dst unchanged.
func (s *Service) Handle(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
	switch method {
	case docservice.MethodGet:
		return s.get(ctx, request, dst)
	case docservice.MethodBatchGet:
		return s.batchGet(ctx, request, dst)
	case docservice.MethodDictionary:
		return s.dictionary(ctx, request, dst)
	case docservice.MethodScan:
		return s.scan(ctx, request, dst)
	case docservice.MethodStats:
		return s.stats(ctx, request, dst)
	}
	return dst, &boxcarrpc.Error{Code: boxcarrpc.CodeUnimplemented, Message: "no method " + method, Processed: true}
}

func (s *Service) get(ctx context.Context, request, dst []byte) ([]byte, error) {
	asked, id, err := wire.DecodeGetRequest(request)
	if err != nil {
		return dst, callError(err)
	}
	if err := s.allowed(ctx, asked.Collection); err != nil {
		return dst, err
	}
	served := s.served.Load()
	c := served.byName[string(asked.Collection)]
	if c == nil {
		of := served.divided[string(asked.Collection)]
		if of == nil {
			return dst, served.unknown(asked.Collection)
		}
		if c = of.of(id); c == nil {
			return wire.AppendStatus(dst, of.absent(of.layout.Shard(id))), nil
		}
	}
	start := len(dst)
	response, asStored, err := c.get(ctx, wire.BeginFound(dst), id, asked.Accept, s.stagesOf(ctx))
	switch {
	case err == nil:
		return wire.EndFound(response, start, asStored), nil
	case errors.Is(err, docservice.ErrNotFound):
		return wire.AppendStatus(dst, docservicepb.Status_STATUS_NOT_FOUND), nil
	case errors.Is(err, ErrClosed) && served.divided[string(asked.Collection)] != nil:
		// The shard has moved away during the call.
		return wire.AppendStatus(dst, docservicepb.Status_STATUS_MOVED), nil
	}
	return dst, callError(err)
}

func (s *Service) batchGet(ctx context.Context, request, dst []byte) ([]byte, error) {
	scratch := s.scratch.Get().(*batchScratch)
	defer s.keep(scratch)
	asked, ids, err := wire.DecodeBatchGetRequest(scratch.ids, request)
	scratch.ids = ids
	if err != nil {
		return dst, callError(err)
	}
	if err := s.allowed(ctx, asked.Collection); err != nil {
		return dst, err
	}
	served := s.served.Load()
	c := served.byName[string(asked.Collection)]
	if c == nil {
		of := served.divided[string(asked.Collection)]
		if of == nil {
			return dst, served.unknown(asked.Collection)
		}
		return s.batchGetSharded(ctx, dst, of, ids, asked.Accept, scratch)
	}
	response, answered, err := c.getMany(ctx, dst, ids, asked.Accept, docservice.MaxReplyBytes-wire.MaxLeftOutBytes, s.stagesOf(ctx), &scratch.memory, &scratch.response)
	if err != nil {
		return dst, callError(err)
	}
	leftOut := len(ids) - answered
	if r := &scratch.response; r.unavailable != nil && !r.useful && leftOut == 0 {
		// This server can answer none of the ids: the client asks another one.
		return dst, callError(r.unavailable)
	}
	if leftOut > 0 {
		response = wire.AppendLeftOut(response, leftOut)
	}
	return response, nil
}

// keep stores the buffers of a batch for the next one.
func (s *Service) keep(scratch *batchScratch) {
	clear(scratch.ids) // they refer to the request
	scratch.ids = scratch.ids[:0]
	scratch.memory.forget()
	s.scratch.Put(scratch)
}

// batchResponse encodes a batch as a BatchGetResponse.
type batchResponse struct {
	useful      bool  // at least one answer is not unavailable
	unavailable error // the error of the first unavailable id
}

func (r *batchResponse) reset() { *r = batchResponse{} }

func (r *batchResponse) begin(dst []byte) []byte { return wire.BeginAnswer(dst) }

func (r *batchResponse) end(dst []byte, start int, asStored bool, err error) []byte {
	switch answer := (Answer{Err: err}); {
	case answer.available():
		r.useful = true
	case r.unavailable == nil:
		r.unavailable = err
	}
	if err != nil {
		return wire.AppendAnswerStatus(dst[:start], Answer{Err: err}.status())
	}
	return wire.EndAnswer(dst, start, asStored)
}

func (s *Service) dictionary(ctx context.Context, request, dst []byte) ([]byte, error) {
	var asked docservicepb.DictionaryRequest
	if err := proto.Unmarshal(request, &asked); err != nil {
		return dst, callError(fmt.Errorf("%w: %w", docservice.ErrMalformed, err))
	}
	var hash codec.DictionaryHash
	if len(asked.GetHash()) != len(hash) {
		return dst, callError(fmt.Errorf("%w: dictionary hash of %d bytes, want %d", docservice.ErrMalformed, len(asked.GetHash()), len(hash)))
	}
	if err := s.allowed(ctx, []byte(asked.GetCollection())); err != nil {
		return dst, err
	}
	holders, err := s.holders([]byte(asked.GetCollection()))
	if err != nil {
		return dst, err
	}
	for _, c := range holders {
		var content []byte
		if content, err = c.dictionary(codec.DictionaryHash(asked.GetHash())); err == nil {
			return marshalAppend(dst, &docservicepb.DictionaryResponse{Dictionary: content})
		}
	}
	return dst, callError(err)
}

// marshalAppend appends the encoded response.
func marshalAppend(dst []byte, response proto.Message) ([]byte, error) {
	result, err := proto.MarshalOptions{}.MarshalAppend(dst, response)
	if err != nil {
		return dst, callError(err)
	}
	return result, nil
}

// errPageFull stops the scan at the first entry that does not fit into the page.
var errPageFull = errors.New("docservice: the page is full")

func (s *Service) scan(ctx context.Context, request, dst []byte) ([]byte, error) {
	var asked docservicepb.ScanRequest
	if err := proto.Unmarshal(request, &asked); err != nil {
		return dst, callError(fmt.Errorf("%w: %w", docservice.ErrMalformed, err))
	}
	if asked.GetLimit() > docservice.MaxScanIDs {
		return dst, callError(fmt.Errorf("%w: limit %d exceeds %d", docservice.ErrMalformed, asked.GetLimit(), docservice.MaxScanIDs))
	}
	if err := s.allowed(ctx, []byte(asked.GetCollection())); err != nil {
		return dst, err
	}
	c, err := s.collection([]byte(asked.GetCollection()))
	if err != nil {
		return dst, err
	}
	o := docservice.ScanOptions{Prefix: asked.GetPrefix(), After: asked.GetAfter(), Limit: int(asked.GetLimit()), IDsOnly: asked.GetIdsOnly()}
	if o.Limit == 0 {
		o.Limit = docservice.DefaultScanIDs
	}
	if !o.IDsOnly {
		if err := budget.Reserve(ctx, docservice.MaxReplyBytes/2); err != nil {
			return dst, callError(err)
		}
	}
	response, entries := dst, 0
	var last []byte
	err = c.scan(ctx, o, codec.Set(asked.GetAccept()), func(id []byte, answer Answer) error {
		size := len(response) - len(dst) + len(answer.Document) + 2*(len(id)+wire.MaxAnswerOverheadBytes) // of the entry, and of next
		if entries > 0 && size > docservice.MaxReplyBytes {
			return errPageFull
		}
		response = wire.AppendEntry(response, id, answer.status(), answer.Document, answer.asStored)
		last = append(last[:0], id...)
		entries++
		return nil
	})
	full := errors.Is(err, errPageFull)
	if err != nil && !full {
		return dst, callError(err)
	}
	if full || entries == o.Limit {
		response = wire.AppendNext(response, last)
	}
	return response, nil
}

func (s *Service) stats(ctx context.Context, request, dst []byte) ([]byte, error) {
	var asked docservicepb.StatsRequest
	if err := proto.Unmarshal(request, &asked); err != nil {
		return dst, callError(fmt.Errorf("%w: %w", docservice.ErrMalformed, err))
	}
	if err := s.allowed(ctx, []byte(cmp.Or(asked.GetCollection(), allCollections))); err != nil {
		return dst, err
	}
	collections := s.Collections()
	if asked.GetCollection() != "" {
		c, err := s.collection([]byte(asked.GetCollection()))
		if err != nil {
			return dst, err
		}
		collections = []*Collection{c}
	}
	response := &docservicepb.StatsResponse{}
	for _, c := range collections {
		stats, err := c.Stats()
		if err != nil {
			return dst, callError(err)
		}
		response.Collections = append(response.Collections, stats.proto())
	}
	return marshalAppend(dst, response)
}

// collection returns the collection of that name. An unknown name is an error of the call,
// not the answer "not found" for a document.
func (s *Service) collection(name []byte) (*Collection, error) {
	served := s.served.Load()
	if c := served.byName[string(name)]; c != nil {
		return c, nil
	}
	return nil, served.unknown(name)
}

// holders is collection, and for a divided collection the shards that are held, at least
// one: each may have dictionaries that the others have not.
func (s *Service) holders(name []byte) ([]*Collection, error) {
	served := s.served.Load()
	of := served.divided[string(name)]
	if of == nil {
		c, err := s.collection(name)
		return []*Collection{c}, err
	}
	held := slices.DeleteFunc(slices.Clone(of.held), func(c *Collection) bool { return c == nil })
	if len(held) == 0 {
		return nil, callError(unavailable(fmt.Errorf("no shard of %q is served here", name)))
	}
	return held, nil
}

// unknown is the error for a collection that is not served.
func (s *served) unknown(name []byte) error {
	if of := s.divided[string(name)]; of != nil {
		return &boxcarrpc.Error{
			Code:      boxcarrpc.CodeInvalidArgument,
			Message:   fmt.Sprintf("collection %q has %d shards: scans and statistics name one, as in %q", name, of.layout.Shards, shard.Name(string(name), 0)),
			Processed: true,
		}
	}
	return &boxcarrpc.Error{
		Code:      boxcarrpc.CodeNotFound,
		Message:   fmt.Sprintf("no collection %.100q here, only %s", name, strings.Join(s.names(), ", ")),
		Processed: true,
	}
}

// available reports whether the answer is other than "unavailable" or an error.
func (a Answer) available() bool {
	return !errors.Is(a.Err, docservice.ErrUnavailable) && !errors.Is(a.Err, ErrClosed)
}

// status returns the answer as a protobuf status.
func (a Answer) status() docservicepb.Status {
	switch {
	case a.Err == nil:
		return docservicepb.Status_STATUS_FOUND
	case errors.Is(a.Err, docservice.ErrNotFound):
		return docservicepb.Status_STATUS_NOT_FOUND
	case !a.available():
		return docservicepb.Status_STATUS_UNAVAILABLE
	}
	return docservicepb.Status_STATUS_ERROR
}

// callError converts an error to that of a call. Errors that concern only this server are
// marked as not processed, so that the pool tries another server.
func callError(err error) error {
	code := boxcarrpc.CodeInternal
	var noMemory *budget.NoMemoryError
	switch {
	case errors.As(err, &noMemory):
		return boxcarrpc.NotProcessed(&boxcarrpc.Error{Code: boxcarrpc.CodeResourceExhausted, Message: noMemory.Error()})
	case errors.Is(err, docservice.ErrUnavailable), errors.Is(err, ErrClosed):
		return boxcarrpc.NotProcessed(&boxcarrpc.Error{Code: boxcarrpc.CodeUnavailable, Message: err.Error()})
	case errors.Is(err, context.Canceled):
		code = boxcarrpc.CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		code = boxcarrpc.CodeDeadlineExceeded
	case errors.Is(err, docservice.ErrMalformed), errors.Is(err, docservice.ErrBadID), errors.Is(err, docservice.ErrBatchTooLarge):
		code = boxcarrpc.CodeInvalidArgument
	}
	return &boxcarrpc.Error{Code: code, Message: err.Error(), Processed: true}
}
