package collection

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/budget"
	"docstore/queue"
	"docstore/queue/codec"
)

// A request does not decode a document while there is no memory for it.
func TestDocumentIsNotDecodedWithoutMemory(t *testing.T) {
	account := budget.New(8<<20).Open(budget.ClientAt(new(net.TCPAddr)), func() {})
	defer account.Close()
	ctx, room := account.NewReservation(t.Context())
	defer room.Release()
	require.True(t, account.TryReserve(8<<20))
	late, cancel := context.WithCancel(ctx)
	cancel()
	read := func() int { t.Error("decodes"); return 0 }
	require.ErrorIs(t, decodePlain(late, 1<<20, read, func() {}), context.Canceled)

	account.Release(8 << 20)
	decoded := 0
	require.NoError(t, decodePlain(ctx, 1<<20, func() int { decoded++; return 1 << 20 }, func() {}))
	require.Equal(t, 1, decoded)
}

// TestStaleSizesAreNotTrusted: an erasure encodes documents again, perhaps without their
// dictionary, and the index keeps their previous sizes. A response that is larger than the
// index states waits for memory, too, and is not held meanwhile.
func TestStaleSizesAreNotTrusted(t *testing.T) {
	const limit, documents, each = 8 << 20, 20, 100 << 10
	f := newMemFixture(t)
	var ids [][]byte
	for i := range documents {
		id := fmt.Sprint("id", i)
		ids = append(ids, []byte(id))
		f.put(id, strings.Repeat("x", each))
	}
	c := f.ready()
	r := c.serving.Load().reader
	for _, id := range ids {
		entry, err := r.lookUp(id)
		require.NoError(t, err)
		entry.place = queue.Place{} // no bytes
		require.NoError(t, r.index.Set(id, entry.append(nil)))
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	get := func(accept codec.Set) func(context.Context) (int, error) {
		return func(ctx context.Context) (int, error) {
			document, _, err := c.get(ctx, nil, ids[0], accept, nil)
			return len(document), err
		}
	}
	batch := func(accept codec.Set) func(context.Context) (int, error) {
		return func(ctx context.Context) (int, error) {
			var list Answers
			result, answered, err := c.getMany(ctx, nil, ids, accept, 4<<20, nil, new(batchMemory), &list)
			if err != nil {
				return len(result), err
			}
			require.Equal(t, documents, answered)
			answers := list.First(answered, result, 0)
			require.Len(t, answers, documents)
			for _, a := range answers {
				require.NoError(t, a.Err)
				require.GreaterOrEqual(t, len(a.Document), each)
			}
			return len(result), nil
		}
	}
	for name, read := range map[string]func(context.Context) (bytes int, err error){
		"get": get(codec.Built()), "batch": batch(codec.Built()), "plain get": get(0), "plain batch": batch(0),
	} {
		t.Run(name, func(t *testing.T) {
			account := budget.New(limit).Open(budget.ClientAt(new(net.TCPAddr)), func() {})
			defer account.Close()
			require.True(t, account.TryReserve(limit))
			ctx, room := account.NewReservation(late)
			bytes, err := read(ctx)
			require.ErrorIs(t, err, context.Canceled)
			require.Zero(t, bytes)
			room.Release()

			ctx, room = account.NewReservation(t.Context())
			defer room.Release()
			released := make(chan struct{})
			go func() { // while it waits, or before
				defer close(released)
				account.Release(limit)
			}()
			bytes, err = read(ctx)
			<-released
			require.NoError(t, err)
			require.GreaterOrEqual(t, bytes, each)
		})
	}
}
