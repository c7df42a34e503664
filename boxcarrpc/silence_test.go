package boxcarrpc

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/core"
	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/wire"
	"docstore/internal/virtualtime"
)

// A transport becomes suspect by the p99 of its server's response times: one that usually
// takes 100 ms is suspect early only before that is known.
func TestSuspicionFollowsUsualResponseTime(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		l := newPipes()
		defer l.Close()
		var pings atomic.Int32
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			c := newRaw(t, conn)
			c.next()
			c.send(wire.AppendHello(nil, wire.Hello{MaxRequest: MaxRequestBytes, MaxLanes: 10}))
			for {
				f, err := c.in.Next()
				if err != nil {
					return
				}
				switch f.Type {
				case wire.TypeLease:
					c.send(wire.AppendSlot(nil, wire.TypeGrant, f.Lane, 0))
				case wire.TypePing:
					pings.Add(1)
					token, _ := f.Ping()
					c.send(wire.AppendPing(nil, wire.TypePong, token))
				case wire.TypeRequest:
					r, _, _, _ := f.Request()
					lane := f.Lane
					time.AfterFunc(100*time.Millisecond, func() {
						c.send(wire.AppendResponse(nil, lane, wire.FlagProcessed, wire.Response{Sequence: r.Sequence}, nil))
					})
				}
			}
		}()
		p := newPoolOf(t, &PoolOptions{Size: 1, Dialer: l.dial}, discovery.Static("s"))
		require.NoError(t, p.WaitReady(t.Context()))
		_, err := p.Call(t.Context(), "m", nil, nil)
		require.NoError(t, err)
		require.Equal(t, int32(1), pings.Load(), "after 50 ms")
		for range 50 {
			_, err := p.Call(t.Context(), "m", nil, nil)
			require.NoError(t, err)
		}
		require.Equal(t, int32(1), pings.Load())
		require.NoError(t, p.Close())
	})
}

// A stopped server is suspect long before it is given up; a slow one only until it answers
// the PING.
func TestTransportIsSuspectUntilPong(t *testing.T) {
	slow := func(_ context.Context, _ string, _, dst []byte) ([]byte, error) {
		time.Sleep(300 * time.Millisecond)
		return dst, nil
	}
	inBubble(t, slow, nil, func(t *testing.T, s *testServer, l *pipes) {
		var cut atomic.Bool
		dial := func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := l.dial(ctx, address)
			return &cutConn{Conn: conn, cut: &cut}, err
		}
		p := newPool(t, &PoolOptions{Size: 1, Dialer: dial}, "s")
		var wg sync.WaitGroup
		suspected := func() (n int) { // of the 300 ms after a call
			wg.Go(func() { _, _ = p.Call(t.Context(), "m", nil, nil) })
			for range 300 {
				time.Sleep(time.Millisecond)
				synctest.Wait()
				if p.slots.peer(0).Suspect {
					n++
				}
			}
			return n
		}
		require.Zero(t, suspected(), "the server answers PINGs at once")
		wg.Wait()
		p.members.mu.Lock()
		p.members.mu.open[0].mu.times = core.Times{}
		p.members.mu.Unlock()
		cut.Store(true)
		require.GreaterOrEqual(t, suspected(), 200)
		require.Zero(t, p.Stats().Broken, "the timeout is a second")
		wg.Wait()
		require.Equal(t, uint64(1), p.Stats().Broken)
	})
}

// A server that dies during a stream is detected by messages to it, long before a
// keep-alive; a stream without messages causes no PINGs.
func TestAServerThatDiesUnderAStream(t *testing.T) {
	inBubble(t, echo, &ServerOptions{StreamHandler: streams}, func(t *testing.T, s *testServer, l *pipes) {
		var cut atomic.Bool
		var writes atomic.Int32
		dial := func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := l.dial(ctx, address)
			return &cutConn{Conn: countedConn{conn, &writes}, cut: &cut}, err
		}
		p := newPool(t, &PoolOptions{Size: 1, Dialer: dial}, "s")
		stream := open(t, p, "echo")
		time.Sleep(5 * time.Second)
		before := writes.Load()
		time.Sleep(50 * time.Second)
		require.Equal(t, before, writes.Load(), "no PINGs are sent")

		for range 100 {
			require.NoError(t, stream.Send([]byte("m")))
			_, err := stream.Receive(nil)
			require.NoError(t, err)
		}
		require.Equal(t, before+100, writes.Load(), "answered messages cause no PINGs")

		time.Sleep(22 * time.Second) // the liveness check is at its slow rate
		cut.Store(true)
		start := time.Now()
		require.NoError(t, stream.Send([]byte("m")))
		_, err := stream.Receive(nil)
		require.ErrorIs(t, err, errSilent)
		require.LessOrEqual(t, time.Since(start), DefaultSilenceTimeout*3/2+4*silenceTick)
	})
}

// An idle client sends a PING 90 s after its last PING or LEASE, and a LEASE in a quarter of an hour.
func TestIdleClientSendsLittle(t *testing.T) {
	inBubble(t, echo, nil, func(t *testing.T, s *testServer, l *pipes) {
		newPool(t, &PoolOptions{Size: 1, Dialer: l.dial}, "s") // it has the best slot
		var writes atomic.Int32
		newPool(t, &PoolOptions{Size: 1, Dialer: func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := l.dial(ctx, address)
			return countedConn{conn, &writes}, err
		}}, "s")
		time.Sleep(10 * time.Minute)
		before := writes.Load()
		time.Sleep(10 * time.Hour)
		require.InDelta(t, 400, writes.Load()-before, 30)
	})
}

// A countedConn counts writes.
type countedConn struct {
	net.Conn
	writes *atomic.Int32
}

func (c countedConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// A server that fails each stream at once always has the fewest. It gets one, and no more
// before a pause.
func TestServerThatFailsStreamsAtOnceGetsFewStreams(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		good, bad := newPipes(), newPipes()
		dial := func(ctx context.Context, address string) (net.Conn, error) {
			if address == "good" {
				return good.dial(ctx, address)
			}
			return bad.dial(ctx, address)
		}
		var failed atomic.Int32
		serveOn(t, good, echo, &ServerOptions{StreamHandler: streams})
		serveOn(t, bad, echo, &ServerOptions{StreamHandler: func(context.Context, string, *ServerStream) error {
			failed.Add(1)
			return &Error{Code: CodeInternal, Message: "broken", Processed: true}
		}})
		p := newPool(t, &PoolOptions{Size: 2, Dialer: dial}, "good", "bad")
		full(t, p)
		for range 20 {
			open(t, p, "wait")
			synctest.Wait()
		}
		require.Equal(t, int32(1), failed.Load())
		time.Sleep(pauseOfARefusal)
		open(t, p, "wait")
		synctest.Wait()
		require.Equal(t, int32(2), failed.Load(), "it is tried again")
	})
}

// pauseOfARefusal is well above the first pause of package core.
const pauseOfARefusal = 100 * time.Millisecond

// A liveness check between the acquisition of a slot and the send does not leave the check
// at its slow rate while the answer is outstanding.
func TestSendRestoresTheRateOfTheLivenessCheck(t *testing.T) {
	g := newGate()
	defer g.release()
	s := serve(t, g.handler, nil)
	p := newPool(t, &PoolOptions{Size: 1}, s.address)
	until(t, "the pool is idle", func() bool { p.members.checkLiveness(); return p.members.livenessCheckSlow.Load() })
	lane, _, err := p.slots.acquire(p.slots.now(), nil, false)
	require.NoError(t, err)
	p.members.checkLiveness()
	require.True(t, p.members.livenessCheckSlow.Load())
	done := make(chan error)
	go func() {
		_, _, err := p.calls.exchange(t.Context(), lane, &call{method: "m"}, nil)
		done <- err
	}()
	until(t, "the check runs at its full rate", func() bool { return !p.members.livenessCheckSlow.Load() })
	g.release()
	require.NoError(t, <-done)
}

// Two of three servers do not accept a connection, or accept it and do not answer. The pool
// is full soon, with the lowest slots of the others.
func TestSilentServersDoNotStarveAPool(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		const servers, answering, size = 60, 20, 64
		c := newNumberedCluster(t)
		c.start(upTo(answering)...)
		silent := map[string]bool{}
		for n := answering; n < servers; n++ {
			silent[place(n)] = n%2 == 0
		}
		dial := func(ctx context.Context, address string) (net.Conn, error) {
			switch accepts, is := silent[address]; {
			case !is:
				return c.dial(ctx, address)
			case accepts:
				ours, theirs := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, theirs) }() // until ours is closed
				return ours, nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		p := newPoolOf(t, &PoolOptions{Size: size, Dialer: dial}, fixedSource(numbered(-1, servers)))
		time.Sleep(2 * time.Second)
		require.Equal(t, size, p.Stats().Slots)
		time.Sleep(8 * time.Second)
		require.Equal(t, (size-1)/answering, p.Stats().Highest)
		require.Equal(t, answering, p.Stats().Live)
		c.use(p, 10*time.Second)
	})
}
