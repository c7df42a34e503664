package server

import (
	"context"
	"errors"
	"time"

	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/queue/codec"
)

// httpRouter returns the Router of the HTTP listener, whose requests for documents are measured
// and traced as the calls of other listeners.
func (s *Server) httpRouter() collection.Router {
	var r collection.Router = &timedRouter{Router: s.router, metrics: s.metrics, observers: s.metrics.observers("http")}
	if _, none := s.options.Tracer.(noTracer); !none {
		r = &tracedRouter{Router: r, tracer: s.options.Tracer}
	}
	return r
}

// timedRouter measures the requests to a Router.
type timedRouter struct {
	collection.Router
	metrics   *metrics
	observers methodObservers
}

func (t *timedRouter) Get(ctx context.Context, name, id []byte, accept codec.Set, dst []byte) ([]byte, bool, error) {
	started := time.Now()
	out, asStored, err := t.Router.Get(ctx, name, id, accept, dst)
	t.metrics.observe(ctx, t.observers.get, time.Since(started))
	return out, asStored, err
}

func (t *timedRouter) GetMany(ctx context.Context, name []byte, ids [][]byte, accept codec.Set, dst []byte, to collection.Receiver) ([]byte, int, error) {
	started := time.Now()
	out, answered, err := t.Router.GetMany(ctx, name, ids, accept, dst, to)
	t.metrics.observe(ctx, t.observers.batchGet, time.Since(started))
	return out, answered, err
}

func (t *timedRouter) Dictionary(ctx context.Context, name []byte, hash codec.DictionaryHash) ([]byte, error) {
	started := time.Now()
	content, err := t.Router.Dictionary(ctx, name, hash)
	t.metrics.observe(ctx, t.observers.dictionary, time.Since(started))
	return content, err
}

// tracedRouter traces the requests to a Router.
type tracedRouter struct {
	collection.Router
	tracer Tracer
}

// trace runs a request as a call of a method.
func (t *tracedRouter) trace(ctx context.Context, method string, request func(context.Context) error) {
	handler := t.tracer.Handler(func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
		err := request(ctx)
		if err == nil || errors.Is(err, docservice.ErrNotFound) {
			return dst, nil
		}
		return dst, collection.CallError(err)
	})
	_, _ = handler(ctx, method, nil, nil) // the request has its error
}

func (t *tracedRouter) Get(ctx context.Context, name, id []byte, accept codec.Set, dst []byte) (out []byte, asStored bool, err error) {
	t.trace(ctx, docservice.MethodGet, func(ctx context.Context) error {
		out, asStored, err = t.Router.Get(ctx, name, id, accept, dst)
		return err
	})
	return out, asStored, err
}

func (t *tracedRouter) GetMany(ctx context.Context, name []byte, ids [][]byte, accept codec.Set, dst []byte, to collection.Receiver) (out []byte, answered int, err error) {
	t.trace(ctx, docservice.MethodBatchGet, func(ctx context.Context) error {
		out, answered, err = t.Router.GetMany(ctx, name, ids, accept, dst, to)
		return err
	})
	return out, answered, err
}

func (t *tracedRouter) Dictionary(ctx context.Context, name []byte, hash codec.DictionaryHash) (content []byte, err error) {
	t.trace(ctx, docservice.MethodDictionary, func(ctx context.Context) error {
		content, err = t.Router.Dictionary(ctx, name, hash)
		return err
	})
	return content, err
}
