package collection

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"docstore/boxcarrpc/budget"
	"docstore/docservice"
	"docstore/docservice/docservicepb"
	"docstore/queue/codec"
	"docstore/queue/shard"
)

// Service is the Router of collections in this process. It does not own them: the caller
// closes them after the server that calls it.
type Service struct {
	served  atomic.Pointer[served]
	adding  sync.Mutex
	tracer  Tracer                                             // nil: none
	allow   func(ctx context.Context, collection string) error // nil: everything is allowed
	scratch sync.Pool
}

// served is an immutable set of collections.
type served struct {
	byName map[string]*shards // also each shard of several, by its name
	list   []*Collection      // by name
}

func (s *served) names() []string {
	names := make([]string, len(s.list))
	for i, c := range s.list {
		names[i] = c.Name()
	}
	return names
}

// batchScratch holds the buffers of a batch.
type batchScratch struct {
	memory  batchMemory
	sharded shardedBatch
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

// Collections returns the collections ordered by name, of one with several shards those that
// are held. The caller must not modify the slice.
func (s *Service) Collections() []*Collection { return s.served.Load().list }

// Authorize sets a function that is called with the collection of each request, before
// anything of the collection is read. Statistics of all collections are those of "*". Its
// error, which matches ErrNotPermitted, is that of the request. It must be called before the
// first request.
func (s *Service) Authorize(allow func(ctx context.Context, collection string) error) {
	s.allow = allow
}

// Allowed returns the error of a request whose client may not use a collection: see
// Authorize. Programs that answer requests in place of a Service call it.
func (s *Service) Allowed(ctx context.Context, collection []byte) error {
	if s.allow == nil {
		return nil
	}
	if err := s.allow(ctx, string(collection)); err != nil {
		return &refusal{ErrNotPermitted, err.Error()}
	}
	return nil
}

// allCollections stands for all collections in Authorize.
const allCollections = "*"

// Get implements Router.
func (s *Service) Get(ctx context.Context, collection, id []byte, accept codec.Set, dst []byte) (_ []byte, asStored bool, err error) {
	if err := s.Allowed(ctx, collection); err != nil {
		return dst, false, err
	}
	served := s.served.Load()
	of := served.byName[string(collection)]
	if of == nil {
		return dst, false, served.unknown(collection)
	}
	i := of.layout.Shard(id)
	c := of.held[i]
	if c == nil {
		return dst, false, of.absent(i)
	}
	dst, asStored, err = c.get(ctx, dst, id, accept, s.stagesOf(ctx))
	if err != nil && of.hasMoved(err) {
		err = docservice.ErrMoved
	}
	return dst, asStored, err
}

// GetMany implements Router.
func (s *Service) GetMany(ctx context.Context, collection []byte, ids [][]byte, accept codec.Set, dst []byte, to Receiver) (_ []byte, answered int, err error) {
	if err := s.Allowed(ctx, collection); err != nil {
		return dst, 0, err
	}
	served := s.served.Load()
	of := served.byName[string(collection)]
	if of == nil {
		return dst, 0, served.unknown(collection)
	}
	scratch := s.scratch.Get().(*batchScratch)
	defer s.keep(scratch)
	if c := of.held[0]; len(of.held) == 1 && c != nil {
		out, answered, err := c.getMany(ctx, dst, ids, accept, MaxBatchBytes, s.stagesOf(ctx), &scratch.memory, to)
		if err == nil || !of.hasMoved(err) {
			return out, answered, err
		}
	}
	return s.getManySharded(ctx, dst, of, ids, accept, scratch, to)
}

// keep stores the buffers of a batch for the next one.
func (s *Service) keep(scratch *batchScratch) {
	scratch.memory.forget()
	s.scratch.Put(scratch)
}

// Dictionary implements Router. It asks all shards that are held: each may have dictionaries
// that the others have not.
func (s *Service) Dictionary(ctx context.Context, collection []byte, hash codec.DictionaryHash) ([]byte, error) {
	if err := s.Allowed(ctx, collection); err != nil {
		return nil, err
	}
	served := s.served.Load()
	of := served.byName[string(collection)]
	if of == nil {
		return nil, served.unknown(collection)
	}
	err := unavailable(fmt.Errorf("no shard of %q is served here", collection))
	for _, c := range of.held {
		if c == nil {
			continue
		}
		var content []byte
		if content, err = c.dictionary(hash); err == nil {
			return content, nil
		}
	}
	return nil, err
}

// Scan implements Router, for a collection of one shard and for one of several by its name.
// It reserves the memory of a page.
func (s *Service) Scan(ctx context.Context, collection []byte, o docservice.ScanOptions, accept codec.Set, fn func(id []byte, answer Answer) error) error {
	if err := s.Allowed(ctx, collection); err != nil {
		return err
	}
	c, err := s.collection(collection)
	if err != nil {
		return err
	}
	if !o.IDsOnly {
		if err := budget.Reserve(ctx, docservice.MaxReplyBytes/2); err != nil {
			return err
		}
	}
	return c.scan(ctx, o, accept, fn)
}

// Stats implements Router.
func (s *Service) Stats(ctx context.Context, collection string) ([]*docservicepb.CollectionStats, error) {
	if err := s.Allowed(ctx, []byte(cmp.Or(collection, allCollections))); err != nil {
		return nil, err
	}
	collections := s.Collections()
	if collection != "" {
		c, err := s.collection([]byte(collection))
		if err != nil {
			return nil, err
		}
		collections = []*Collection{c}
	}
	var list []*docservicepb.CollectionStats
	for _, c := range collections {
		stats, err := c.Stats()
		if err != nil {
			return nil, err
		}
		list = append(list, stats.proto())
	}
	return list, nil
}

// collection returns the only shard of the collection of that name. An unknown name is an
// error of the call, not the answer "not found" for a document.
func (s *Service) collection(name []byte) (*Collection, error) {
	served := s.served.Load()
	of := served.byName[string(name)]
	switch {
	case of == nil:
		return nil, served.unknown(name)
	case len(of.held) > 1:
		return nil, &refusal{docservice.ErrMalformed, fmt.Sprintf("collection %q has %d shards: scans and statistics name one, as in %q",
			name, len(of.held), shard.Name(string(name), 0))}
	case of.held[0] == nil:
		return nil, of.absent(0)
	}
	return of.held[0], nil
}

// unknown is the error for a collection that is not served.
func (s *served) unknown(name []byte) error {
	return &refusal{docservice.ErrNoCollection, fmt.Sprintf("no collection %.100q here, only %s", string(name), strings.Join(s.names(), ", "))}
}
