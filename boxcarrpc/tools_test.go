package boxcarrpc

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/wire"
	"docstore/internal/virtualtime"
)

// A client that asks for boards, each longer than what it lets the server send, holds
// no more than maxTools of them, and for toolTime.
func TestBoardsThatAreNotReceivedAreBounded(t *testing.T) {
	const slots, more = 4000, 5
	virtualtime.Test(t, func(t *testing.T) {
		l := newPipes()
		s := serveOn(t, l, echo, &ServerOptions{MaxLanesPerConn: slots})
		conn, err := l.dial(t.Context(), "")
		require.NoError(t, err)
		c := newRaw(t, conn)
		ends := make(chan wire.Status, maxTools+more)
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
		for number := range uint32(maxTools + more) {
			c.send(wire.AppendOpen(nil, number, wire.Open{Sequence: 1}, MethodBoard, nil))
		}
		for range more {
			require.Equal(t, uint32(CodeResourceExhausted), (<-ends).Code)
		}
		synctest.Wait()
		require.Empty(t, ends)
		require.Equal(t, int64(maxTools), s.counts.tools.Load())
		began := time.Now()
		for range maxTools {
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
