package docservice

import (
	"context"
	"runtime"

	"docstore/boxcarrpc"
)

// Documents that are decoded here have a length that is known only afterwards. So that
// requests for long ones do not take memory before it can be reserved, as many are decoded
// at a time as keep the processors busy. Clients of this package decode for themselves.
var decoding = make(chan struct{}, runtime.GOMAXPROCS(0))

// decodePlain calls read, which decodes documents and returns their bytes, and reserves
// memory for them as boxcarrpc.Reserve does. If there is none it waits for it and calls read
// again: read must drop what it has decoded before.
func decodePlain(ctx context.Context, read func() (bytes int)) error {
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
		if err := boxcarrpc.Reserve(ctx, bytes); err != nil {
			return err
		}
	}
}
