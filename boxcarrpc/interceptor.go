package boxcarrpc

import (
	"context"
	"sync"
)

// Interceptors wrap calls and streams, for tasks that concern all methods: traces, metrics,
// logs, checks. On the server they map a handler to a handler and see everything that
// reaches a handler, including the built-in methods. On the client they map a Caller to a
// Caller and a StreamOpener to a StreamOpener, and see a call once, however many attempts
// it takes.
//
// They are chained once, when the server or the pool is made. Without interceptors no extra
// function is called.

// A Caller makes a call: [Pool.CallWith] without interceptors is the innermost one. An
// interceptor always gets an info that is not nil. Metadata that it adds is sent, but is
// not visible in the caller's CallInfo. info is valid until the Caller returns.
type Caller func(ctx context.Context, method string, request, dst []byte, info *CallInfo) ([]byte, error)

// A StreamOpener opens a stream: [Pool.Stream] without interceptors is the innermost one.
// [ClientStream.OnEnd] reports the end of the stream.
type StreamOpener func(ctx context.Context, method string, metadata Metadata) (*ClientStream, error)

// chain wraps inner in interceptors, the first outermost.
func chain[T any](inner T, interceptors []func(T) T) T {
	for i := len(interceptors) - 1; i >= 0; i-- {
		inner = interceptors[i](inner)
	}
	return inner
}

// infos holds *CallInfo for the calls of pools with interceptors.
var infos sync.Pool

// intercepted makes a call through the interceptors.
func (p *Pool) intercepted(ctx context.Context, method string, request, dst []byte, info *CallInfo) ([]byte, error) {
	own, ok := infos.Get().(*CallInfo)
	if !ok {
		own = new(CallInfo)
	}
	*own = CallInfo{Slot: -1}
	if info != nil {
		*own = info.input()
	}
	out, err := p.caller(ctx, method, request, dst, own)
	if info != nil {
		own.Metadata = info.Metadata
		*info = *own
	}
	*own = CallInfo{}
	infos.Put(own)
	if err != nil {
		return dst, err
	}
	return out, nil
}
