package boxcarrpc

import (
	"bytes"
	"context"
	"flag"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/internal/wire"
	"docstore/internal/testseed"
)

var hostileFlag = flag.Duration("hostile", 2*time.Second, "how long TestHostilePeers goes on")

// hostileMemory limits the heap of server, peers and test together: what the options below
// allow all connections to hold, requests in 8 MiB, responses in an eighth of that for each
// of 64, 64 streams of 256 KiB each way, and as much again for garbage.
const hostileMemory = 2 * (8 + 64*8/8 + 64/2 + 32) << 20

// Hostile peers misbehave in many ways, for as long as -hostile says, while a correct
// client calls: it gets every response, memory is bounded, and the server holds nothing of
// them afterwards.
func TestHostilePeers(t *testing.T) {
	s := serve(t, echo, &ServerOptions{
		MaxConns: 64, MaxLanes: 256, maxLanesPerConn: 100, MaxStreams: 64, Budget: budget.New(8 << 20), StreamHandler: streams,
		HandshakeTimeout: 300 * time.Millisecond, WriteTimeout: 300 * time.Millisecond,
	})
	p := newPool(t, &PoolOptions{Size: 8, SilenceTimeout: time.Minute}, s.address)
	full(t, p)
	ctx, cancel := context.WithTimeout(t.Context(), *hostileFlag)
	defer cancel()
	var wg sync.WaitGroup
	var visits [len(mischief)]atomic.Int64
	for range 16 {
		rng := rand.New(testseed.PCG(t))
		wg.Go(func() {
			for ctx.Err() == nil {
				i := rng.IntN(len(mischief))
				visits[i].Add(1)
				visit(ctx, s.address, rng, mischief[i])
			}
		})
	}
	for i := range 4 {
		request := bytes.Repeat([]byte{byte('a' + i)}, 1000)
		wg.Go(func() {
			for ctx.Err() == nil {
				out, err := p.Call(context.Background(), "m", request, nil)
				if err != nil || !bytes.Equal(out, request) {
					t.Errorf("%d bytes, %v", len(out), err)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	var memory runtime.MemStats
	var most uint64
	for ctx.Err() == nil {
		runtime.ReadMemStats(&memory)
		most = max(most, memory.HeapAlloc)
		require.Less(t, most, uint64(hostileMemory))
		time.Sleep(50 * time.Millisecond)
	}
	wg.Wait()
	until(t, "the server holds nothing of them", func() bool {
		x := s.Stats()
		return x.Connections == p.Stats().Transports && x.Slots == 8 && x.InFlight == 0 && x.Streams == 0 && x.BufferBytes == 0
	})
	require.NotZero(t, s.Stats().Faults)
	t.Logf("at most %d MiB", most>>20)
	for i := range visits {
		require.NotZero(t, visits[i].Load(), "mischief %d", i)
	}
}

// visit connects and misbehaves in one way, for at most a third of a second.
func visit(ctx context.Context, address string, rng *rand.Rand, do func(net.Conn, *rand.Rand)) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer func() {
		if rng.IntN(2) == 0 {
			_ = conn.(*net.TCPConn).SetLinger(0) // close with a reset
		}
		_ = conn.Close()
	}()
	_ = conn.SetDeadline(time.Now().Add(time.Duration(rng.Int64N(int64(time.Second / 3)))))
	do(conn, rng)
}

// sendAll sends frames and reports whether they were written.
func sendAll(conn net.Conn, frames ...[]byte) bool {
	_, err := conn.Write(bytes.Join(frames, nil))
	return err == nil
}

var hostileHello = wire.AppendHello(nil, wire.Hello{MaxResponse: MaxResponseBytes, Name: "hostile"})

// lanes requests n lanes, more than the server grants.
func lanes(conn net.Conn, n uint32) bool {
	for lane := range n {
		if !sendAll(conn, wire.AppendSlot(nil, wire.TypeLease, lane, wire.NoSlot)) {
			return false
		}
	}
	return true
}

// linger waits until the server closes the connection or the visit is over.
func linger(conn net.Conn) {
	var b [1]byte
	for {
		if _, err := conn.Read(b[:]); err != nil {
			return
		}
	}
}

var mischief = [...]func(net.Conn, *rand.Rand){
	// Random bytes, with or without a HELLO before.
	func(conn net.Conn, rng *rand.Rand) {
		if rng.IntN(2) == 0 && !sendAll(conn, hostileHello) {
			return
		}
		noise := make([]byte, 1+rng.IntN(4000))
		for i := range noise {
			noise[i] = byte(rng.Uint32())
		}
		sendAll(conn, noise)
		linger(conn)
	},
	// Silence.
	func(conn net.Conn, _ *rand.Rand) { linger(conn) },
	// A frame sent byte by byte.
	func(conn net.Conn, rng *rand.Rand) {
		frames := append(bytes.Clone(hostileHello), wire.AppendData(nil, 0, 1, make([]byte, 20_000))...)
		for i := 0; i < len(frames) && sendAll(conn, frames[i:i+1]); i++ {
			time.Sleep(time.Duration(rng.IntN(int(time.Millisecond))))
		}
	},
	// Well-formed frames of every type, in any order, with any numbers.
	func(conn net.Conn, rng *rand.Rand) {
		for sendAll(conn, hostileHello) {
			for range 20 {
				if !sendAll(conn, anyFrame(rng)) {
					return
				}
			}
		}
	},
	// Long requests on all lanes, never completed.
	func(conn net.Conn, _ *rand.Rand) {
		if !sendAll(conn, hostileHello) || !lanes(conn, 100) {
			return
		}
		for lane := range uint32(100) {
			sendAll(conn, wire.AppendRequest(nil, lane, wire.Request{Sequence: 1, Total: 1 << 20}, "m", make([]byte, 1000)))
		}
		linger(conn)
	},
	// Requests whose responses are not read.
	func(conn net.Conn, _ *rand.Rand) {
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		if !sendAll(conn, hostileHello, lease) {
			return
		}
		data := make([]byte, 30<<10)
		for i := uint32(1); sendAll(conn, wire.AppendRequest(nil, 0, wire.Request{Sequence: i, Total: uint32(len(data))}, "m", data)); i++ {
			time.Sleep(time.Millisecond) // the next request may arrive before the response: a fault
		}
	},
	// Streams that use all their credit and read nothing.
	func(conn net.Conn, _ *rand.Rand) {
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		if !sendAll(conn, hostileHello) {
			return
		}
		piece := make([]byte, wire.MessageRoom)
		for number := range uint32(64) {
			sendAll(conn, wire.AppendOpen(nil, number, wire.Open{Sequence: 1}, "echo", nil))
			for credit := wire.Window; credit >= wire.MessageCost(len(piece)); credit -= wire.MessageCost(len(piece)) {
				if !sendAll(conn, wire.AppendMessage(nil, number, 1, wire.FlagMore, piece)) {
					return
				}
			}
		}
		time.Sleep(50 * time.Millisecond)
	},
	// Boards that are not read.
	func(conn net.Conn, _ *rand.Rand) {
		if !sendAll(conn, hostileHello) || !lanes(conn, 100) {
			return
		}
		for number := range uint32(64) {
			if !sendAll(conn, wire.AppendOpen(nil, number, wire.Open{Sequence: 1}, MethodBoard, nil)) {
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	},
	// Endless PINGs.
	func(conn net.Conn, _ *rand.Rand) {
		pings := bytes.Repeat(wire.AppendPing(nil, wire.TypePing, 7), 1000)
		for ok := sendAll(conn, hostileHello); ok; {
			ok = sendAll(conn, pings)
		}
	},
	// Lanes that are leased and released repeatedly.
	func(conn net.Conn, _ *rand.Rand) {
		if !sendAll(conn, hostileHello) {
			return
		}
		for sendAll(conn, lease, request) {
			time.Sleep(time.Millisecond)
			if !sendAll(conn, wire.AppendCancel(nil, 0, 1), wire.AppendRelease(nil, 0)) {
				return
			}
		}
	},
}

// anyFrame returns a well-formed frame that violates the protocol.
func anyFrame(rng *rand.Rand) []byte {
	lane, sequence := rng.Uint32N(120), rng.Uint32N(3)
	data := make([]byte, rng.IntN(2000))
	switch rng.IntN(12) {
	case 0:
		return wire.AppendSlot(nil, wire.TypeLease, lane, rng.Uint32N(1<<20))
	case 1:
		return wire.AppendRelease(nil, lane)
	case 2, 3:
		return wire.AppendRequest(nil, lane, wire.Request{Sequence: sequence, Total: rng.Uint32N(1 << 24)}, "m", nil)
	case 4:
		return wire.AppendData(nil, lane, sequence, data)
	case 5:
		return wire.AppendCancel(nil, lane, sequence)
	case 6:
		return wire.AppendReason(nil, wire.TypeGoAway, string(data[:min(len(data), 255)]))
	case 7:
		return wire.AppendOpen(nil, lane, wire.Open{Sequence: sequence}, "echo", nil)
	case 8:
		return wire.AppendMessage(nil, lane, sequence, uint8(rng.IntN(2)), data)
	case 9:
		return wire.AppendCredit(nil, lane, sequence, 1+rng.Uint32N(wire.Window))
	case 10:
		return wire.AppendSequence(nil, wire.TypeEnd, lane, sequence)
	}
	return wire.AppendSequence(nil, wire.TypeReset, lane, sequence)
}

// A client that connected and sent garbage in a loop was logged each time.
func TestHostileConnectionsDoNotFillTheLog(t *testing.T) {
	var d diary
	s := serve(t, echo, &ServerOptions{Logger: slog.New(slog.NewTextHandler(writerFunc(func(b []byte) { d.add(string(b)) }), nil))})
	for range 50 {
		c := dialRaw(t, s.address)
		c.send([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n0123456789012345678901234567890123456789"))
		c.ends()
	}
	until(t, "all faults are counted", func() bool { return s.Stats().Faults == 50 })
	until(t, "a fault is logged", func() bool { return len(d.read()) > 0 })
	require.Len(t, d.read(), 1)
	require.True(t, strings.Contains(d.read()[0], "kind=protocol"), d.read()[0])
}
