package boxcarrpc

import (
	"bytes"
	"context"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/internal/wire"
)

const (
	unreadBudget = 8 << 20
	unreadPeers  = 100
	// The budget, one message above it, and 128 KiB for each connection and garbage.
	unreadMemory = unreadBudget + MaxResponseBytes + unreadPeers*128<<10
)

// unreadKinds are the requests whose answers a peer does not read, each repeated on one
// connection.
var unreadKinds = map[string]func(i uint32) []byte{
	"pongs":  func(uint32) []byte { return pings },
	"grants": func(uint32) []byte { return leaseAndRelease },
	"large answers on one lane": func(i uint32) []byte {
		return wire.AppendRequest(nil, 0, wire.Request{Sequence: i}, "read", nil)
	},
	"large answers on all lanes": func(i uint32) []byte {
		return wire.AppendRequest(nil, i%100, wire.Request{Sequence: i}, "read", nil)
	},
	"small answers": func(i uint32) []byte {
		return wire.AppendRequest(nil, i%100, wire.Request{Sequence: i, Total: 20}, "small", make([]byte, 20))
	},
	"boards": func(i uint32) []byte {
		return wire.AppendRequest(nil, i%100, wire.Request{Sequence: i}, MethodBoard, nil)
	},
	"boards of streams": func(i uint32) []byte {
		return wire.AppendOpen(nil, i%100, wire.Open{Sequence: i}, MethodBoard, nil)
	},
	"messages of streams": func(i uint32) []byte {
		return wire.AppendOpen(nil, i%100, wire.Open{Sequence: i}, "much", nil)
	},
	"messages that no handler takes": func(i uint32) []byte {
		return append(wire.AppendOpen(nil, i%100, wire.Open{Sequence: 1 + i/1000}, "wait", nil),
			wire.AppendMessage(nil, i%100, 1+i/1000, wire.FlagMore, make([]byte, wire.MessageRoom))...)
	},
	"requests that do not end": func(i uint32) []byte {
		if i <= 100 {
			return wire.AppendRequest(nil, i-1, wire.Request{Sequence: 1, Total: MaxRequestBytes}, "read", nil)
		}
		return wire.AppendData(nil, i%100, 1, make([]byte, wire.DataRoom))
	},
}

var pings = bytes.Repeat(wire.AppendPing(nil, wire.TypePing, 1), 1000)

var leaseAndRelease = func() (b []byte) {
	for range 1000 {
		b = wire.AppendSlot(b, wire.TypeLease, 200, wire.NoSlot)
		b = wire.AppendRelease(b, 200)
	}
	return b
}()

// unreadHandler returns a response whose size depends on the method.
func unreadHandler(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
	switch method {
	case "small":
		return append(dst, make([]byte, 16<<10)...), nil
	case "good":
		return append(dst, request...), nil
	}
	if err := budget.Reserve(ctx, 4<<20); err != nil {
		return dst, err
	}
	return append(dst, make([]byte, 4<<20)...), nil
}

func unreadStreams(ctx context.Context, method string, s *ServerStream) error {
	if method == "wait" {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := budget.Reserve(ctx, 100<<10); err != nil {
		return err
	}
	for message := make([]byte, 100<<10); ; {
		if err := s.Send(message); err != nil {
			return err
		}
	}
}

// Peers that read none of the answers to their requests cost bounded memory, and no call of
// a good client fails.
func TestUnreadAnswersCostBoundedMemory(t *testing.T) {
	load := 2 * time.Second
	if testing.Short() {
		load /= 10
	}
	for name, ask := range unreadKinds {
		t.Run(name, func(t *testing.T) {
			s := serve(t, unreadHandler, &ServerOptions{
				Budget: budget.New(unreadBudget), StreamHandler: unreadStreams,
			})
			p := newPool(t, &PoolOptions{Size: 4, MaxRetries: -1}, s.address)
			full(t, p)
			ctx, cancel := context.WithTimeout(t.Context(), load)
			defer cancel()
			var wg sync.WaitGroup
			for range unreadPeers {
				wg.Go(func() {
					for ctx.Err() == nil {
						askWithoutReading(ctx, s.address, ask)
					}
				})
			}
			var most uint64
			request := []byte("the good client's")
			for ctx.Err() == nil {
				out, err := p.Call(t.Context(), "good", request, nil)
				require.NoError(t, err)
				require.Equal(t, request, out)
				time.Sleep(20 * time.Millisecond) // lets the others run
				live := liveBytes()
				for range 5 { // includes objects allocated during the collection
					if live < unreadMemory {
						break
					}
					live = min(live, liveBytes())
				}
				most = max(most, live)
				require.Less(t, most, uint64(unreadMemory))
				require.Less(t, s.options.Budget.Stats().Used, int64(unreadMemory))
			}
			wg.Wait()
			t.Logf("at most %d MiB; %d peers were disconnected", most>>20, s.options.Budget.Stats().Disconnected)
			until(t, "the server holds nothing of them", func() bool {
				x := s.Stats()
				return x.Connections == 1 && x.Slots == 4 && x.InFlight == 0 && x.Streams == 0 && x.BufferBytes == 0
			})
			require.NoError(t, p.Close())
			until(t, "nothing is charged", func() bool { return s.options.Budget.Stats().Used == 0 })
		})
	}
}

// liveBytes returns the heap in use after a garbage collection.
func liveBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// askWithoutReading sends requests on a new connection until that fails or ctx ends.
func askWithoutReading(ctx context.Context, address string, ask func(i uint32) []byte) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	var leases []byte
	for lane := range uint32(100) {
		leases = wire.AppendSlot(leases, wire.TypeLease, lane, wire.NoSlot)
	}
	for i, ok := uint32(1), sendAll(conn, hostileHello, leases); ok; i++ {
		ok = sendAll(conn, ask(i))
	}
}

// The outbox that exceeds the budget may be that of the slowest peer, which is then
// disconnected while the lock of its outbox is held.
func TestPeerIsDisconnectedUnderTheLockOfItsOutbox(t *testing.T) {
	here, there := net.Pipe()
	server := NewServer(unreadHandler, &ServerOptions{Budget: budget.New(unreadBudget)})
	c := newServerConn(server, here, &Peer{Address: here.RemoteAddr()})
	c.account.Charge(2*unreadBudget + budget.MaxMessageBytes)
	c.account.Await(1)
	response := make([]byte, wire.ResponseRoom)
	for range 3 { // the buffer grows beyond one chunk of the budget
		c.out.Response(0, 0, wire.Response{Total: uint32(len(response))}, nil, nil, response, nil)
	}
	_, err := there.Read(make([]byte, 1))
	require.Error(t, err)
}
