package boxcarrpc

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/wire"
	"docstore/internal/virtualtime"
)

// A heldConn records writes. Each write blocks until let is closed or receives an element.
type heldConn struct {
	net.Conn
	let chan struct{}

	mu     sync.Mutex
	writes [][]byte
}

func (c *heldConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.writes = append(c.writes, bytes.Clone(b))
	c.mu.Unlock()
	<-c.let
	return len(b), nil
}

// messages returns the written messages.
func (c *heldConn) messages(t *testing.T) (all []string) {
	var message []byte
	for rest := bytes.Join(c.writes, nil); len(rest) > 0; {
		f, n, err := wire.ParseFrame(rest)
		require.NoError(t, err)
		require.Positive(t, n)
		_, data, err := f.Message()
		require.NoError(t, err)
		message = append(message, data...)
		if f.Flags&wire.FlagMore == 0 {
			all, message = append(all, string(message)), nil
		}
		rest = rest[n:]
	}
	return all
}

// heldStream returns a stream on a connection whose writes block.
func heldStream(ctx context.Context) (*stream, *heldConn) {
	c := &heldConn{let: make(chan struct{})}
	o, s := &conn.Outbox{}, &stream{ctx: ctx}
	o.Init(c, nil, 0, func(error) {})
	s.init(o, 0, 1, 0)
	return s, c
}

func TestSmallMessagesOfAStreamAreBatched(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		s, c := heldStream(t.Context())
		want := []string{"first"}
		require.NoError(t, s.send([]byte("first")))
		synctest.Wait()
		message := make([]byte, 100)
		for i := range byte(100) { // while the first is being
			message[0] = i
			require.NoError(t, s.send(message))
			want = append(want, string(message))
		}
		close(c.let)
		s.out.Wait()
		require.Len(t, c.writes, 2)
		require.Equal(t, want, c.messages(t))
	})
}

func TestASendersSmallMessagesAreBounded(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		s, c := heldStream(t.Context())
		var want []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 200 {
				message := make([]byte, 1000)
				if i%50 == 49 {
					message = make([]byte, 40<<10) // in order with the small ones
				}
				message[0] = byte(i)
				want = append(want, string(message))
				if s.send(message) != nil {
					return
				}
				require.NoError(t, s.takeCredit(uint32(wire.Window-s.mu.credit))) // as if it was received
			}
		}()
		synctest.Wait() // the sender waits for the first write
		require.Len(t, c.writes, 1)
		require.True(t, s.out.Below(conn.BatchBytes/2+wire.MessageCost(1000)))
		close(c.let)
		<-done
		s.out.Wait()
		require.Len(t, want, 200)
		require.Equal(t, want, c.messages(t))
	})
}
