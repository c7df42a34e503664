package boxcarrpc

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/wire"
	"docstore/internal/virtualtime"
)

func TestTheBoardShowsEverySlot(t *testing.T) {
	g := newGate()
	s := serve(t, g.handler, &ServerOptions{Name: "be-7"})
	before := time.Now()
	p := newPool(t, &PoolOptions{Size: 3, Name: "fe-1"}, s.address)
	full(t, p)
	_, err := p.Call(t.Context(), MethodEcho, nil, nil) // on slot 0; makes the server trusted
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
	until(t, "the error is counted for the slot", func() bool { return s.Board().Slots[0].Errors == 1 })
	require.Zero(t, s.Board().Slots[1].Errors)
	echoed, err := p.Call(t.Context(), MethodEcho, []byte("abc"), nil)
	require.NoError(t, err)
	require.Equal(t, "abc", string(echoed))
}

// A client that requests boards larger than its stream credit holds at most
// maxClientTools of them, and each for at most toolTime. Other clients get theirs meanwhile.
func TestBoardsThatAreNotReceivedAreBounded(t *testing.T) {
	const slots, more = 4000, 5
	virtualtime.Test(t, func(t *testing.T) {
		l := newPipes()
		s := serveOn(t, l, echo, &ServerOptions{maxLanesPerConn: slots})
		conn, err := l.dialFrom("10.0.0.1")(t.Context(), "")
		require.NoError(t, err)
		c := newRaw(t, conn)
		ends := make(chan wire.Status, maxClientTools+more)
		granted := make(chan struct{})
		go func() {
			leased := 0
			for {
				f, err := c.in.Next()
				if err != nil {
					return
				}
				switch f.Type {
				case wire.TypeGrant:
					if leased++; leased == slots {
						close(granted)
					}
				case wire.TypeStatus:
					status, _, err := f.Status()
					assert.NoError(t, err)
					ends <- status
				}
			}
		}()
		c.send(wire.AppendHello(nil, wire.Hello{MaxResponse: MaxResponseBytes, Name: "raw"}))
		require.True(t, lanes(c, slots))
		<-granted
		for number := range uint32(maxClientTools + more) {
			c.send(wire.AppendOpen(nil, number, wire.Open{Sequence: 1}, MethodBoard, nil))
		}
		for range more {
			require.Equal(t, uint32(CodeResourceExhausted), (<-ends).Code)
		}
		synctest.Wait()
		require.Empty(t, ends)
		require.Equal(t, int64(maxClientTools), s.counts.tools.Load())
		require.Equal(t, uint64(more), s.Stats().RefusedBy["client_streams"])
		others := newPoolOf(t, &PoolOptions{Dialer: l.dialFrom("10.0.0.2")}, discovery.Static("s"))
		began := time.Now()
		for range 2 {
			stream, err := others.Stream(t.Context(), MethodBoard, nil)
			require.NoError(t, err)
			_, err = stream.Receive(nil)
			require.NoError(t, err)
			stream.Close()
		}
		require.Zero(t, time.Since(began))
		for range maxClientTools {
			require.Equal(t, uint32(CodeDeadlineExceeded), (<-ends).Code)
		}
		require.Equal(t, toolTime, time.Since(began))
		require.Zero(t, s.counts.tools.Load())

		p := newPoolOf(t, &PoolOptions{Dialer: l.dial}, discovery.Static("s"))
		stream, err := p.Stream(t.Context(), MethodBoard, nil)
		require.NoError(t, err)
		board, err := stream.Receive(nil)
		require.NoError(t, err)
		require.Greater(t, len(board), wire.Window)
		require.NoError(t, conn.Close())
	})
}

// A tool answers one message of bounded size without a slot, also while the server drains, and
// only clients that the server authorizes.
func TestToolsOfAProgram(t *testing.T) {
	const method = "/test/Tool"
	s := serve(t, echo, &ServerOptions{
		Tools: map[string]Handler{method: func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
			if string(request) == "fail" {
				return nil, &Error{Code: CodeNotFound, Message: "no such thing", Processed: true}
			}
			return append(append(dst, PeerOf(ctx).Name+" asks "...), request...), nil
		}},
		Authorize: func(ctx context.Context, method string) error {
			if PeerOf(ctx).Name == "stranger" {
				return errors.New("go away")
			}
			return nil
		},
	})
	ask := func(client, request string) (string, error) {
		p := newPoolOf(t, &PoolOptions{Name: client}, discovery.Static(s.address))
		stream, err := p.Stream(t.Context(), method, nil)
		require.NoError(t, err)
		defer stream.Close()
		if err := stream.Send([]byte(request)); err != nil {
			return "", err
		}
		answer, err := stream.Receive(nil)
		return string(answer), err
	}
	for _, draining := range []bool{false, true} {
		if draining {
			s.Drain()
		}
		answer, err := ask("me", "x")
		require.NoError(t, err)
		require.Equal(t, "me asks x", answer)
		_, err = ask("me", "fail")
		require.Equal(t, CodeNotFound, CodeOf(err))
		_, err = ask("stranger", "x")
		require.Equal(t, CodePermissionDenied, CodeOf(err))
		_, err = ask("me", strings.Repeat("x", maxToolRequestBytes+1))
		require.Error(t, err)
		until(t, "all have ended", func() bool { return s.counts.tools.Load() == 0 })
	}
}
