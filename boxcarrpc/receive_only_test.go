package boxcarrpc

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/budget"
)

// A client that only receives wrote nothing, because each message put off its ping. After 3
// minutes the server closed the connection as idle, which cost the client the slots of the
// server.
func TestAClientThatOnlyReceivesStaysConnected(t *testing.T) {
	for _, every := range []time.Duration{time.Second, 20 * time.Second, 80 * time.Second} {
		messages := int(4*idleTimeout/every) + 1
		opts := &ServerOptions{StreamHandler: func(_ context.Context, _ string, s *ServerStream) error {
			for range messages {
				time.Sleep(every)
				if err := s.Send([]byte("news")); err != nil {
					return err
				}
			}
			return nil
		}}
		inBubble(t, echo, opts, func(t *testing.T, s *testServer, l *pipes) {
			p := newPool(t, &PoolOptions{Size: 1, Dialer: l.dial}, "s")
			stream := open(t, p, "watch")
			for range messages {
				_, err := stream.Receive(nil)
				require.NoError(t, err, "a message each %v", every)
			}
			require.Equal(t, uint64(1), s.Stats().Accepted)
			require.Zero(t, s.Stats().Faults)
			require.Zero(t, p.Stats().Broken)
		})
	}
}

// The same for one response that arrives for longer than the server's idle limit, also if
// the server reads nothing meanwhile because the response is more than the client's share.
func TestAResponseMayArriveSlowly(t *testing.T) {
	const size, bytesPerSecond = 30 << 20, 133 << 10
	for _, limit := range []int64{DefaultBufferBytes, 32 << 20} {
		inBubble(t, func(_ context.Context, _ string, _, dst []byte) ([]byte, error) {
			return append(dst, make([]byte, size)...), nil
		}, &ServerOptions{Budget: budget.New(limit)}, func(t *testing.T, s *testServer, l *pipes) {
			p := newPool(t, &PoolOptions{Size: 1, Dialer: func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := l.dial(ctx, address)
				return &slowConn{conn, bytesPerSecond}, err
			}}, "s")
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			start := time.Now()
			out, err := p.Call(ctx, "m", nil, nil)
			require.NoError(t, err)
			require.Len(t, out, size)
			require.Greater(t, time.Since(start), idleTimeout)
			require.Equal(t, uint64(1), s.Stats().Accepted)
			require.Zero(t, s.Stats().Faults)
			require.Zero(t, p.Stats().Broken)
		})
	}
}

// A slowConn receives that many bytes a second, in packets that are more frequent than a silence.
type slowConn struct {
	net.Conn
	bytesPerSecond int
}

func (c *slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(len(b), 4<<10)])
	time.Sleep(time.Duration(n) * time.Second / time.Duration(c.bytesPerSecond))
	return n, err
}
