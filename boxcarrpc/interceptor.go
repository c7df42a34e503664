package boxcarrpc

import (
	"context"
	"sync"
)

// Interceptors are around calls and streams, for what concerns all methods: traces,
// metrics, logs, checks. On the server they are functions from handler to handler,
// and see everything that reaches a handler, the methods for tools among it. On the
// client they are functions from Caller to Caller and from StreamOpener to
// StreamOpener, and see a call once, whatever the attempts that it takes.
//
// They are put together once, when the server or the pool is made. Where there are
// none, nothing is called in their place.

// A Caller makes a call: [Pool.CallWith] without interceptors is the innermost one.
// Interceptors get an info that is never nil; what they put into its Metadata is
// sent, but not seen by who made the call. It is valid until the Caller returns.
type Caller func(ctx context.Context, method string, request, dst []byte, info *CallInfo) ([]byte, error)

// A StreamOpener opens a stream: [Pool.Stream] without interceptors is the innermost
// one. [ClientStream.OnEnd] tells how it ends.
type StreamOpener func(ctx context.Context, method string, metadata Metadata) (*ClientStream, error)

// chain puts interceptors around something, the first outermost.
func chain[T any](inner T, interceptors []func(T) T) T {
	for i := len(interceptors) - 1; i >= 0; i-- {
		inner = interceptors[i](inner)
	}
	return inner
}

// infos are of *CallInfo, for the calls of pools with interceptors.
var infos sync.Pool

// intercepted makes a call by way of the interceptors.
func (p *Pool) intercepted(ctx context.Context, method string, request, dst []byte, info *CallInfo) ([]byte, error) {
	own, ok := infos.Get().(*CallInfo)
	if !ok {
		own = new(CallInfo)
	}
	*own = CallInfo{Metadata: info.metadata(), Slot: -1}
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
