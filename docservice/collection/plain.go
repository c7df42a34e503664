package collection

import (
	"context"

	"docstore/boxcarrpc"
)

// decodePlain calls read, which decodes documents of about expected bytes and returns their
// size, and reserves memory for them with boxcarrpc.Reserve. If they are larger than
// expected and no memory is free, it calls discard, which drops all references to the
// documents, waits, and calls read again. Clients of this package decode documents
// themselves.
func decodePlain(ctx context.Context, expected int, read func() (bytes int), discard func()) error {
	for {
		if err := boxcarrpc.Reserve(ctx, expected); err != nil {
			return err
		}
		reserved := false
		err := boxcarrpc.Compute(ctx, expected, func() {
			expected = read()
			reserved = boxcarrpc.TryReserve(ctx, expected)
		})
		if reserved || err != nil {
			return err
		}
		discard() // many requests may wait
	}
}

// decodedBytes returns the approximate size of a decoded document, 0 if there is none.
func (r *reader) decodedBytes(id []byte) int {
	entry, err := r.lookUp(id)
	if err != nil {
		return 0
	}
	n, err := r.queue.DecodedBytes(entry.address)
	if err != nil {
		return 0
	}
	return n
}
