package collection

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
)

// A request does not decode a document while there is no memory for it.
func TestDocumentIsNotDecodedWithoutMemory(t *testing.T) {
	account := boxcarrpc.NewBudget(8<<20).Open(&boxcarrpc.Peer{Address: new(net.TCPAddr)}, func() {})
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
