package collection

import (
	"context"

	"docstore/boxcarrpc/budget"
)

// decodePlain calls read, which decodes documents of about expected bytes and returns their
// size, and reserves memory for them with budget.Reserve. If they are larger than
// expected and no memory is free, it calls discard, which drops all references to the
// documents, waits, and calls read again. Clients of this package decode documents
// themselves.
func decodePlain(ctx context.Context, expected int, read func() (bytes int), discard func()) error {
	for {
		if err := budget.Reserve(ctx, expected); err != nil {
			return err
		}
		reserved := false
		err := budget.Compute(ctx, expected, func() {
			expected = read()
			reserved = budget.TryReserve(ctx, expected)
		})
		if reserved || err != nil {
			return err
		}
		discard() // many requests may wait
	}
}

// readPlain is read that decodes the document with decodePlain.
func (r *reader) readPlain(ctx context.Context, dst, id []byte, entry indexEntry, cached bool, trace stages) (result []byte, asStored bool, err error) {
	noMemory := decodePlain(ctx, entry.place.RawBytes(), func() int {
		result, asStored, err = r.read(dst, id, entry, 0, cached, trace)
		return len(result) - len(dst)
	}, func() { result = nil })
	if noMemory != nil {
		return dst, false, noMemory
	}
	return result, asStored, err
}
