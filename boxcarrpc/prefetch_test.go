package boxcarrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/internal/wire"
	"docstore/internal/testseed"
)

// A prefetchRecorder records the calls of ServerOptions.Prefetch.
type prefetchRecorder struct {
	mu     sync.Mutex
	groups [][]string
}

func (o *prefetchRecorder) prefetch(requests [][]byte) {
	group := make([]string, len(requests))
	for i, r := range requests {
		group[i] = string(r)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.groups = append(o.groups, group)
}

func (o *prefetchRecorder) take() (groups [][]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	groups, o.groups = o.groups, nil
	return groups
}

// requestOf returns a REQUEST of one frame.
func requestOf(lane, sequence uint32, method, request string) []byte {
	return wire.AppendRequest(nil, lane, wire.Request{Sequence: sequence, Total: uint32(len(request))}, method, []byte(request))
}

// together returns a connection with n lanes on which a request has been answered.
func together(t *testing.T, l *pipes, n uint32, method string) *rawConn {
	conn, err := l.dial(t.Context(), "")
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() }) // the server may have closed it
	c := newRaw(t, conn)
	c.hello()
	c.lease(n)
	c.send(requestOf(0, 1, method, "first"))
	require.Equal(t, "first", c.answers(1)[0].data)
	return c
}

// sendMeanwhile sends while the test reads the responses, which show whether the frames
// arrived.
func (c *rawConn) sendMeanwhile(frames []byte) {
	go func() { _, _ = c.Write(frames) }()
}

// A rawAnswer is one response.
type rawAnswer struct {
	code  Code
	data  string
	flags uint8
}

// answers reads n responses, each of one frame and on its own lane.
func (c *rawConn) answers(n int) map[uint32]rawAnswer {
	c.t.Helper()
	require.NoError(c.t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
	all := make(map[uint32]rawAnswer)
	for range n {
		f := c.next()
		r, data, err := f.Response()
		require.NoError(c.t, err)
		all[f.Lane] = rawAnswer{Code(r.Code), string(data), f.Flags}
	}
	require.Len(c.t, all, n)
	return all
}

func TestPrefetchGetsRequestsThatArriveTogether(t *testing.T) {
	var o prefetchRecorder
	handler := func(_ context.Context, method string, request, dst []byte) ([]byte, error) {
		if string(request) == "bad" {
			return dst, &Error{Code: CodeInvalidArgument}
		}
		return append(dst, request...), nil
	}
	options := &ServerOptions{Prefetch: map[string]func([][]byte){"get": o.prefetch, "other": o.prefetch}}
	inBubble(t, handler, options, func(t *testing.T, _ *testServer, l *pipes) {
		c := together(t, l, 8, "get")
		require.Empty(t, o.take(), "a single request")
		sequence := uint32(1)
		send := func(methods, requests string) [][]string {
			sequence++
			var batch []byte
			method := strings.Fields(methods)
			for i, r := range strings.Fields(requests) {
				batch = append(batch, requestOf(uint32(i), sequence, method[i%len(method)], r)...)
			}
			c.sendMeanwhile(batch)
			c.answers(len(strings.Fields(requests)))
			return o.take()
		}
		// The buffer of a new connection holds all of these.
		require.Equal(t, [][]string{{"a", "b", "c"}}, send("get", "a b c"))
		require.Empty(t, send("get", "a"))
		require.Empty(t, send("none", "a b c"))
		require.Equal(t, [][]string{{"a", "c", "e"}}, send("get other", "a b c d e"), "requests of the first method only")
		require.Equal(t, [][]string{{"b", "d"}}, send("none get", "a b c d"))
		require.Equal(t, [][]string{{"a", "bad"}}, send("get", "a bad"))
		require.Equal(t, [][]string{{"b", "c"}}, send("get", "a b c"), "the last request failed")
		require.Equal(t, [][]string{{"a", "b"}}, send("get", "a b"))
	})
}

// A client that may call one method must not cause prefetching for another.
func TestPrefetchGetsNoForbiddenRequests(t *testing.T) {
	var o prefetchRecorder
	var asked atomic.Int64
	options := &ServerOptions{
		Prefetch: map[string]func([][]byte){"get": o.prefetch, "secret": o.prefetch},
		Authorize: func(ctx context.Context, method string) error {
			asked.Add(1)
			if method == "secret" && PeerOf(ctx).Name == "raw" {
				return errors.New("not for you")
			}
			return nil
		},
	}
	inBubble(t, echo, options, func(t *testing.T, _ *testServer, l *pipes) {
		c := together(t, l, 3, "get")
		for sequence, method := range []string{"get", "secret"} {
			asked.Store(0)
			var batch []byte
			for lane := range uint32(3) {
				batch = append(batch, requestOf(lane, uint32(2+sequence), method, "x")...)
			}
			c.sendMeanwhile(batch)
			c.answers(3)
			require.Equal(t, int64(4), asked.Load(), "once for the batch and once for each request")
		}
		require.Equal(t, [][]string{{"x", "x", "x"}}, o.take())
	})
}

func TestPrefetchGetsWholeRequestsWithinLimits(t *testing.T) {
	s := NewServer(echo, &ServerOptions{Prefetch: map[string]func([][]byte){"get": func([][]byte) {}}})
	near, far := net.Pipe()
	defer func() { require.NoError(t, errors.Join(near.Close(), far.Close())) }()
	c := newServerConn(s, near, &Peer{Address: near.RemoteAddr()})
	var b []byte
	for i := range uint32(maxPrefetch) {
		b = append(b, requestOf(i, 1, "get", fmt.Sprint(i))...)
	}
	gather := func(b []byte) (requests []string, rest int) {
		var a prefetchBatch
		rest = len(a.gather(c, b))
		for _, r := range a.requests {
			requests = append(requests, string(r))
		}
		return requests, rest
	}
	more := requestOf(maxPrefetch, 1, "get", "more")
	requests, rest := gather(append(b[:len(b):len(b)], more...))
	require.Len(t, requests, maxPrefetch)
	require.Equal(t, len(more), rest)

	one := requestOf(0, 1, "get", "one")
	for name, skipped := range map[string][]byte{
		"longest":    requestOf(1, 1, "get", strings.Repeat("x", maxPrefetchBytes+1)),
		"incomplete": wire.AppendRequest(nil, 1, wire.Request{Sequence: 1, Total: 7}, "get", []byte("part")),
		"other":      requestOf(1, 1, "put", "x"),
		"cancel":     wire.AppendCancel(nil, 1, 1),
	} {
		requests, rest = gather(append(append(append([]byte{}, one...), skipped...), one...))
		require.Equal(t, []string{"one", "one"}, requests, name)
		require.Zero(t, rest, name)
	}
	for cut := range len(one) {
		requests, rest = gather(append(append([]byte{}, one...), one[:cut]...))
		require.Equal(t, []string{"one"}, requests)
		require.Equal(t, cut, rest)
	}
	random := testseed.Rand(t)
	for range 5000 { // the checksums have not been verified: it may be any bytes
		bytes := append([]byte{}, b...)
		for range 1 + random.IntN(4) {
			bytes[random.IntN(len(bytes))] = byte(random.Uint32())
		}
		gather(bytes)
	}
}

// The responses are the same with and without Prefetch.
func TestResponsesAreTheSameWithPrefetch(t *testing.T) {
	const lanes, batches = 24, 30
	handler := func(ctx context.Context, _ string, request, dst []byte) ([]byte, error) {
		switch kind, _, _ := strings.Cut(string(request), " "); kind {
		case "wait":
			<-ctx.Done()
			return dst, ctx.Err()
		case "bad":
			return dst, &Error{Code: CodeNotFound, Message: string(request)}
		case "panic":
			panic("ouch")
		}
		return append(dst, request...), nil
	}
	random := testseed.Rand(t)
	seed := [2]uint64{random.Uint64(), random.Uint64()}
	run := func(options *ServerOptions) (all []map[uint32]rawAnswer, stats ServerStats) {
		inBubble(t, handler, options, func(t *testing.T, s *testServer, l *pipes) {
			all = answersOf(t, together(t, l, lanes, "get"), rand.New(rand.NewPCG(seed[0], seed[1])), lanes, batches)
			stats = s.Stats()
		})
		return all, stats
	}
	alone, before := run(nil)
	var o prefetchRecorder
	with, after := run(&ServerOptions{Prefetch: map[string]func([][]byte){"get": o.prefetch}})
	for i := range alone {
		require.True(t, maps.Equal(alone[i], with[i]), "batch %d: %v, with Prefetch %v", i, alone[i], with[i])
	}
	require.Equal(t, before.Panics, after.Panics)
	require.Equal(t, before.Leases, after.Leases)
	require.Zero(t, after.InFlight)
	groups := o.take()
	require.NotEmpty(t, groups)
	seen := make(map[string]int)
	for _, group := range groups {
		for _, request := range group {
			seen[request]++
			require.Equal(t, 1, seen[request], "each request is passed once")
		}
	}
}

// answersOf sends batches of requests and reads their responses.
func answersOf(t *testing.T, c *rawConn, random *rand.Rand, lanes int, batches uint32) (all []map[uint32]rawAnswer) {
	for sequence := uint32(2); sequence < 2+batches; sequence++ {
		var batch []byte
		var lost []uint32 // lanes that lost their slots
		n := 1 + random.IntN(lanes)
		for _, lane := range random.Perm(lanes)[:n] {
			lane := uint32(lane)
			text := fmt.Sprint(lane, " of ", sequence)
			switch random.IntN(12) {
			case 0:
				batch = append(batch, requestOf(lane, sequence, "get", "wait "+text)...)
				batch = wire.AppendCancel(batch, lane, sequence)
			case 1:
				text = "wait " + text
				batch = wire.AppendRequest(batch, lane, wire.Request{Sequence: sequence, Total: uint32(len(text)), Budget: time.Microsecond}, "get", []byte(text))
			case 2:
				batch = append(batch, requestOf(lane, sequence, "get", "bad "+text)...)
			case 3:
				batch = append(batch, requestOf(lane, sequence, "get", "panic "+text)...)
				lost = append(lost, lane)
			case 4:
				batch = append(batch, requestOf(lane, sequence, "put", text)...)
			default:
				batch = append(batch, requestOf(lane, sequence, "get", text)...)
			}
		}
		c.sendMeanwhile(batch)
		answers := c.answers(n)
		for lane, a := range answers {
			if a.code == CodeDeadlineExceeded {
				answers[lane] = rawAnswer{code: a.code} // may fail in the handler or before
			}
		}
		all = append(all, answers)
		for _, lane := range lost {
			c.send(wire.AppendSlot(nil, wire.TypeLease, lane, wire.NoSlot))
			require.Equal(t, wire.TypeGrant, c.next().Type)
		}
	}
	return all
}

// Whatever Prefetch does, the requests are served, and a server that stops does not wait
// for it.
func TestMisbehavingPrefetchDelaysNoRequest(t *testing.T) {
	const lanes = 6 // the buffer of a new connection holds a request of each
	for name, misbehave := range map[string]func(open <-chan struct{}){
		"blocks": func(open <-chan struct{}) { <-open },
		"panics": func(<-chan struct{}) { panic("ouch") },
		"ends":   func(<-chan struct{}) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			var open chan struct{}
			var calls, intact atomic.Int32
			inBubble(t, echo, &ServerOptions{Prefetch: map[string]func([][]byte){"get": func(requests [][]byte) {
				calls.Add(1)
				misbehave(open)
				for _, r := range requests {
					if string(r) == "x" {
						intact.Add(1)
					}
				}
			}}}, func(t *testing.T, s *testServer, l *pipes) {
				open = make(chan struct{}) // made in the bubble
				c := together(t, l, lanes, "get")
				var batch []byte
				for i := range uint32(lanes) {
					batch = append(batch, requestOf(i, 2, "get", "x")...)
				}
				c.sendMeanwhile(batch)
				for _, a := range c.answers(lanes) {
					require.Equal(t, rawAnswer{CodeOK, "x", wire.FlagProcessed}, a)
				}
				require.Equal(t, int32(1), calls.Load())
				c.send(requestOf(0, 3, "get", "y"))
				require.Equal(t, "y", c.answers(1)[0].data)
				go func() { _, _ = io.Copy(io.Discard, c) }()
				require.NoError(t, s.Shutdown(t.Context()))
				close(open)
				synctest.Wait()
				require.Equal(t, name == "panics", s.methods.named([]byte("get")).quick())
				require.Zero(t, s.Stats().Panics)
				if name == "blocks" {
					require.Equal(t, int32(lanes), intact.Load(), "the read buffer has been reused")
				}
			})
		})
	}
}
