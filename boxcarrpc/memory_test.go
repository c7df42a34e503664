package boxcarrpc

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/internal/conn"
)

// Buffers that grew under load are freed when the connection is idle.
func TestIdleConnectionFreesItsBuffers(t *testing.T) {
	inBubble(t, echo, nil, func(t *testing.T, s *testServer, l *pipes) {
		p := newPool(t, &PoolOptions{Size: 4, Dialer: l.dial}, "s")
		full(t, p)
		held := func() (bytes int) { // of both sides
			p.members.mu.Lock()
			defer p.members.mu.Unlock()
			s.mu.Lock()
			defer s.mu.Unlock()
			outboxes, readers := []*conn.Outbox{&p.members.mu.open[0].out}, []*conn.Reader{&p.members.mu.open[0].turn.in}
			for c := range s.mu.conns {
				outboxes, readers = append(outboxes, &c.out), append(readers, &c.in)
			}
			for i, o := range outboxes {
				bytes += o.Held() + readers[i].Held()
			}
			return bytes
		}
		document := make([]byte, 25<<10)
		for range 20 {
			out, err := p.Call(t.Context(), "m", document, nil)
			require.NoError(t, err)
			require.Len(t, out, len(document))
		}
		synctest.Wait()
		require.Greater(t, held(), 4*len(document))

		time.Sleep(2 * keepAlive) // it requests a better slot or sends a PING
		synctest.Wait()
		require.Less(t, held(), 4<<10)

		out, err := p.Call(t.Context(), "m", document, nil)
		require.NoError(t, err)
		require.True(t, bytes.Equal(document, out))
	})
}

// The buffer for responses adapts to its method, and a rare large response leaves no large
// buffer.
func TestResponseBuffersFitTheirMethod(t *testing.T) {
	answer := func(m *method, size int) (capacity int) {
		b := m.buffer()
		capacity = cap(*b)
		m.keep(b, append(*b, make([]byte, size)...))
		return capacity
	}
	var m method
	require.Zero(t, answer(&m, 100<<10))
	answer(&m, 100<<10)
	// A sync.Pool may drop items, but not always.
	until(t, "the buffer fits", func() bool { return answer(&m, 100<<10) >= 100<<10 })
	answer(&m, 10)
	require.Less(t, answer(&m, 10), 100<<10)
	answer(&m, 1<<20)
	require.Less(t, answer(&m, 10), 1<<20)
}
