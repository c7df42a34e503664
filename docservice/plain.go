package docservice

import (
	"context"
	"runtime"

	"docstore/boxcarrpc"
)

// decoding limits the documents decoded at the same time to the number of processors. Their
// length is known only after decoding, so memory cannot be reserved before. Clients of this
// package decode documents themselves.
var decoding = make(chan struct{}, runtime.GOMAXPROCS(0))

// decodePlain calls read, which decodes documents and returns their size, and reserves
// memory for them with boxcarrpc.Reserve. If no memory is free it calls discard, which drops
// all references to the documents, waits, and calls read again.
func decodePlain(ctx context.Context, read func() (bytes int), discard func()) error {
	for {
		select {
		case decoding <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		bytes := read()
		reserved := boxcarrpc.TryReserve(ctx, bytes)
		<-decoding
		if reserved {
			return nil
		}
		discard() // many requests may wait
		if err := boxcarrpc.Reserve(ctx, bytes); err != nil {
			return err
		}
	}
}
