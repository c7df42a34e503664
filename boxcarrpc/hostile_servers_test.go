package boxcarrpc

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/wire"
	"docstore/internal/testseed"
)

const (
	hostileServers = 12
	hostilePools   = 3
	// What the options of the pools below allow them to hold: responses of 4 MiB each and 8
	// streams of 256 KiB each way, the same for the servers, and as much again for garbage.
	hostileServersMemory = 2 * (hostilePools*2*(4+8/2) + 32) << 20
)

// Hostile servers misbehave in many ways, for as long as -hostile says, while one server is
// correct: every call ends in time with the right response or an error, memory is bounded,
// and a closed pool holds nothing of them.
func TestHostileServers(t *testing.T) {
	good := serve(t, echo, &ServerOptions{StreamHandler: streams})
	addresses := []string{good.address}
	var visits [len(serverMischief)]atomic.Int64
	for i := range hostileServers {
		addresses = append(addresses, serveHostile(t, i, &visits))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var answers atomic.Int64
	for range hostilePools {
		rng := rand.New(testseed.PCG(t))
		wg.Go(func() {
			for ctx.Err() == nil {
				answers.Add(runPool(ctx, t, addresses, rng))
			}
		})
	}
	var memory runtime.MemStats
	var most uint64
	seenAll := func() bool {
		seen := answers.Load() > 0
		for i := range visits {
			seen = seen && visits[i].Load() > 0
		}
		return seen
	}
	for end := time.Now().Add(*hostileFlag); time.Now().Before(end) || !seenAll(); {
		runtime.ReadMemStats(&memory)
		most = max(most, memory.HeapAlloc)
		require.Less(t, most, uint64(hostileServersMemory))
		time.Sleep(50 * time.Millisecond)
	}
	cancel()
	wg.Wait()
	t.Logf("%d good answers, at most %d MiB", answers.Load(), most>>20)
}

// runPool runs a pool with the servers for up to two seconds and returns the number of
// correct responses.
func runPool(ctx context.Context, t *testing.T, addresses []string, rng *rand.Rand) int64 {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(rng.Int64N(int64(2*time.Second))))
	defer cancel()
	p, err := NewPool(discovery.Static(addresses...), &PoolOptions{
		Size: 24, BufferBytes: 4 << 20, MaxStreams: 8, DialTimeout: 300 * time.Millisecond, SilenceTimeout: 200 * time.Millisecond,
		LanesPerConn: 1 + rng.IntN(4), Methods: map[string]Method{"twice": {Idempotent: true, HedgeAfter: 20 * time.Millisecond}},
	})
	if !assert.NoError(t, err) {
		return 0
	}
	var wg sync.WaitGroup
	var answers atomic.Int64
	for i, method := range []string{"once", "twice", "once", "twice"} {
		request := bytes.Repeat([]byte{byte('a' + i)}, 1+rng.IntN(100_000))
		wg.Go(func() {
			for ctx.Err() == nil {
				ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
				out, err := p.Call(ctx, method, request, nil)
				cancel()
				switch {
				case err != nil:
				case assert.True(t, bytes.Equal(out, request), "another's answer"):
					answers.Add(1)
				}
			}
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			if stream, err := p.Stream(ctx, "echo", nil); err == nil {
				for err == nil {
					if err = stream.Send(make([]byte, 40_000)); err == nil {
						_, err = stream.Receive(nil)
					}
				}
			}
			cancel()
		}
	})
	wg.Wait()
	assert.NoError(t, p.Close())
	assert.Zero(t, p.members.buffers.used.Load())
	return answers.Load()
}

// serveHostile misbehaves in a different way on each connection.
func serveHostile(t *testing.T, first int, visits *[len(serverMischief)]atomic.Int64) (address string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	rng := rand.New(testseed.PCG(t))
	wg.Go(func() {
		for i := first; ; i++ {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			i, seed := i%len(serverMischief), rng.Uint64()
			wg.Go(func() {
				defer conn.Close()
				visits[i].Add(1)
				rng := rand.New(rand.NewPCG(seed, seed))
				_ = conn.SetDeadline(time.Now().Add(time.Duration(rng.Int64N(int64(2 * time.Second)))))
				serverMischief[i](newRaw(t, conn), rng)
			})
		}
	})
	t.Cleanup(func() { // after the pools'
		ln.Close()
		wg.Wait()
	})
	return ln.Addr().String()
}

// answering sends HELLO, grants every LEASE, and answers each request and opened stream
// with the result of answer until that is nil.
func answering(c *rawConn, answer func(wire.Frame, wire.Request) []byte) {
	slot := uint32(0)
	for {
		f, err := c.in.Next()
		if err != nil {
			return
		}
		var out []byte
		switch f.Type {
		case wire.TypeHello:
			out = wire.AppendHello(nil, wire.Hello{MaxRequest: MaxRequestBytes, MaxLanes: 64, MaxStreams: 64})
		case wire.TypeLease:
			out = wire.AppendSlot(nil, wire.TypeGrant, f.Lane, slot)
			slot++
		case wire.TypeRequest:
			r, _, _, err := f.Request()
			if err != nil {
				return
			}
			out = answer(f, r)
		case wire.TypeOpen:
			out = answer(f, wire.Request{Sequence: 1})
		default:
			continue
		}
		if out == nil || !sendAll(c.Conn, out) {
			return
		}
	}
}

var serverMischief = [...]func(*rawConn, *rand.Rand){
	// Random bytes, with or without a HELLO before.
	func(c *rawConn, rng *rand.Rand) {
		noise := make([]byte, 1+rng.IntN(4000))
		for i := range noise {
			noise[i] = byte(rng.Uint32())
		}
		if rng.IntN(2) == 0 {
			noise = append(wire.AppendHello(nil, wire.Hello{MaxRequest: MaxRequestBytes, MaxLanes: 8}), noise...)
		}
		sendAll(c.Conn, noise)
		linger(c.Conn)
	},
	// Silence.
	func(c *rawConn, _ *rand.Rand) { linger(c.Conn) },
	// A HELLO sent byte by byte.
	func(c *rawConn, rng *rand.Rand) {
		hello := wire.AppendHello(nil, wire.Hello{MaxRequest: MaxRequestBytes, MaxLanes: 8})
		for i := 0; i < len(hello) && sendAll(c.Conn, hello[i:i+1]); i++ {
			time.Sleep(time.Duration(rng.IntN(int(20 * time.Millisecond))))
		}
	},
	// Slots, and then silence.
	func(c *rawConn, _ *rand.Rand) {
		answering(c, func(wire.Frame, wire.Request) []byte { return []byte{} })
	},
	// Closes the connection instead of answering.
	func(c *rawConn, _ *rand.Rand) {
		answering(c, func(wire.Frame, wire.Request) []byte { return nil })
	},
	// The longest responses, never complete.
	func(c *rawConn, _ *rand.Rand) {
		answering(c, func(f wire.Frame, r wire.Request) []byte {
			out := wire.AppendResponse(nil, f.Lane, wire.FlagProcessed, wire.Response{Sequence: r.Sequence, Total: MaxResponseBytes, Lowest: 1}, nil)
			for range 100 {
				out = append(out, wire.AppendData(nil, f.Lane, r.Sequence, make([]byte, 30_000))...)
			}
			return out
		})
	},
	// Immediate errors.
	func(c *rawConn, rng *rand.Rand) {
		answering(c, func(f wire.Frame, r wire.Request) []byte {
			return wire.AppendResponse(nil, f.Lane, uint8(rng.IntN(8)), wire.Response{Sequence: r.Sequence, Lowest: 0, Code: 1 + rng.Uint32N(20)}, nil)
		})
	},
	// Unsolicited responses.
	func(c *rawConn, rng *rand.Rand) {
		answering(c, func(f wire.Frame, r wire.Request) []byte {
			return wire.AppendResponse(nil, rng.Uint32N(64), wire.FlagProcessed, wire.Response{Sequence: rng.Uint32N(3), Code: uint32(CodeNotFound)}, nil)
		})
	},
	// Well-formed frames of every type, in any order, with any numbers.
	func(c *rawConn, rng *rand.Rand) {
		answering(c, func(wire.Frame, wire.Request) []byte {
			var out []byte
			for range 1 + rng.IntN(5) {
				out = append(out, anyServersFrame(rng)...)
			}
			return out
		})
	},
	// Endless PINGs whose answers are not read.
	func(c *rawConn, _ *rand.Rand) {
		pings := bytes.Repeat(wire.AppendPing(nil, wire.TypePing, 7), 1000)
		for ok := sendAll(c.Conn, wire.AppendHello(nil, wire.Hello{MaxRequest: MaxRequestBytes, MaxLanes: 8})); ok; {
			ok = sendAll(c.Conn, pings)
		}
	},
	// DRAIN and UNDRAIN repeatedly.
	func(c *rawConn, _ *rand.Rand) {
		answering(c, func(wire.Frame, wire.Request) []byte {
			return bytes.Repeat(append(wire.AppendReason(nil, wire.TypeDrain, "mine"), wire.AppendReason(nil, wire.TypeUndrain, "mine")...), 10)
		})
	},
	// Messages on streams without credit.
	func(c *rawConn, rng *rand.Rand) {
		answering(c, func(f wire.Frame, r wire.Request) []byte {
			out := wire.AppendHeader(nil, f.Lane, r.Sequence, nil)
			for range rng.IntN(30) {
				out = append(out, wire.AppendMessage(nil, f.Lane, r.Sequence, uint8(rng.IntN(2)), make([]byte, 30_000))...)
			}
			return out
		})
	},
}

// anyServersFrame returns a well-formed frame that violates the protocol.
func anyServersFrame(rng *rand.Rand) []byte {
	lane, sequence := rng.Uint32N(10), rng.Uint32N(4)
	data := make([]byte, rng.IntN(2000))
	switch rng.IntN(12) {
	case 0:
		return wire.AppendSlot(nil, wire.TypeGrant, lane, rng.Uint32N(1<<20))
	case 1:
		return wire.AppendSlot(nil, wire.TypeDeny, lane, rng.Uint32N(1<<20))
	case 2:
		return wire.AppendResponse(nil, lane, uint8(rng.IntN(8)), wire.Response{Sequence: sequence, Total: uint32(len(data)), Code: 1 + rng.Uint32N(16)}, data)
	case 3:
		return wire.AppendData(nil, lane, sequence, data)
	case 4:
		return wire.AppendReason(nil, wire.TypeGoAway, "mine")
	case 5:
		return wire.AppendHeader(nil, lane, sequence, nil)
	case 6:
		return wire.AppendMessage(nil, lane, sequence, uint8(rng.IntN(2)), data)
	case 7:
		return wire.AppendCredit(nil, lane, sequence, 1+rng.Uint32N(wire.Window))
	case 8:
		return wire.AppendStatus(nil, lane, uint8(rng.IntN(2)), wire.Status{Sequence: sequence, Code: rng.Uint32N(20)}, nil)
	case 9:
		return wire.AppendSequence(nil, wire.TypeReset, lane, sequence)
	case 10:
		return wire.AppendPing(nil, wire.TypePong, rng.Uint64())
	}
	return wire.AppendHello(nil, wire.Hello{})
}
