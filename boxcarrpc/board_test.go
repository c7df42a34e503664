package boxcarrpc

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheBoardShowsEverySlot(t *testing.T) {
	g := newGate()
	s := serve(t, g.handler, &ServerOptions{Name: "be-7"})
	before := time.Now()
	p := newPool(t, &PoolOptions{Size: 3, Name: "fe-1"}, s.address)
	full(t, p)
	_, err := p.Call(t.Context(), MethodEcho, nil, nil) // on slot 0, which makes the server trusted
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	called := make(chan error, 1)
	go func() {
		_, err := p.Call(ctx, "m", nil, nil)
		called <- err
	}()
	defer cancel()
	<-g.entered // on slot 0
	answer, err := p.Call(t.Context(), MethodBoard, nil, nil)
	require.NoError(t, err)
	var b Board
	require.NoError(t, json.Unmarshal(answer, &b))
	require.Equal(t, "be-7", b.Name)
	require.Equal(t, 3, b.LowestFree)
	require.Equal(t, 2, b.InFlight)
	require.Len(t, b.Slots, 3)
	for i, slot := range b.Slots {
		require.Equal(t, i, slot.Number)
		require.Equal(t, "fe-1", slot.Client)
		require.Contains(t, slot.Address, "127.0.0.1:")
		require.Less(t, slot.Age, time.Since(before))
		require.Equal(t, i < 2, slot.Busy)
		require.Equal(t, []uint64{2, 1, 0}[i], slot.Requests)
	}
	cancel()
	require.ErrorIs(t, <-called, context.Canceled)
	until(t, "the error is the slot's", func() bool { return s.Board().Slots[0].Errors == 1 })
	require.Zero(t, s.Board().Slots[1].Errors)
	echoed, err := p.Call(t.Context(), MethodEcho, []byte("abc"), nil)
	require.NoError(t, err)
	require.Equal(t, "abc", string(echoed))
}
