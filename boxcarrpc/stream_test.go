package boxcarrpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/wire"
	"docstore/internal/testseed"
)

// streams is the handler of these tests: the method selects the behaviour.
func streams(ctx context.Context, method string, s *ServerStream) error {
	switch method {
	case "echo": // bidirectional
		for {
			message, err := s.Receive(nil)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil {
				err = s.Send(message)
			}
			if err != nil {
				return err
			}
		}
	case "count": // client
		total := 0
		for {
			message, err := s.Receive(nil)
			if errors.Is(err, io.EOF) {
				return s.Send([]byte(strconv.Itoa(total)))
			}
			if err != nil {
				return err
			}
			total += len(message)
		}
	case "repeat": // server: the number of times is the first message
		message, err := s.Receive(nil)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(message))
		for i := 0; i < n && err == nil; i++ {
			err = s.Send(fmt.Appendf(nil, "%d", i))
		}
		return err
	case "dressed":
		if err := s.SendHeader(append(Metadata(nil).Append("header", "for"), s.Metadata()...)); err != nil {
			return err
		}
		if err := s.SetTrailer(Metadata(nil).Append("trailer", "")); err != nil {
			return err
		}
		if err := s.Send(nil); err != nil {
			return err
		}
		if err := s.SendHeader(nil); err == nil {
			return errors.New("a header behind a message")
		}
		return &Error{Code: CodeNotFound, Message: "no more"}
	case "flood":
		for {
			if err := s.Send(make([]byte, 10_000)); err != nil {
				return err
			}
		}
	case "panic":
		panic("as asked")
	case "exit":
		runtime.Goexit()
	case "unwell in between":
		if err := s.Send([]byte("begun")); err != nil {
			return err
		}
		fallthrough
	case "unwell":
		return NotProcessed(errors.New("not today"))
	}
	<-ctx.Done() // "wait"
	return ctx.Err()
}

func streamPool(t testing.TB, server *ServerOptions, pool *PoolOptions) (*testServer, *Pool) {
	if server == nil {
		server = &ServerOptions{}
	}
	server.StreamHandler = streams
	s := serve(t, echo, server)
	return s, newPool(t, pool, s.address)
}

func open(t testing.TB, p *Pool, method string) *ClientStream {
	t.Helper()
	s, err := p.Stream(t.Context(), method, nil)
	require.NoError(t, err)
	return s
}

// quiet waits until neither side has a stream.
func quiet(t testing.TB, s *testServer, p *Pool) {
	t.Helper()
	until(t, "no stream is left", func() bool {
		return p.Stats().Streams == 0 && s.Stats().Streams == 0 && s.Stats().InFlight == 0
	})
}

func TestStreamsOfTheThreeKinds(t *testing.T) {
	s, p := streamPool(t, nil, nil)
	t.Run("client", func(t *testing.T) {
		st := open(t, p, "count")
		for range 1000 {
			require.NoError(t, st.Send([]byte("four")))
		}
		require.NoError(t, st.Send(nil))
		st.CloseSend()
		st.CloseSend()
		got, err := st.Receive([]byte("n="))
		require.NoError(t, err)
		require.Equal(t, "n=4000", string(got))
		got, err = st.Receive(got)
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, "n=4000", string(got))
	})
	t.Run("server", func(t *testing.T) {
		st := open(t, p, "repeat")
		require.NoError(t, st.Send([]byte("30000")))
		st.CloseSend()
		for i := range 30_000 {
			got, err := st.Receive(nil)
			require.NoError(t, err)
			require.Equal(t, strconv.Itoa(i), string(got))
		}
		_, err := st.Receive(nil)
		require.ErrorIs(t, err, io.EOF)
		require.ErrorIs(t, st.Send(nil), io.EOF)
	})
	t.Run("bidirectional", func(t *testing.T) {
		st := open(t, p, "echo")
		rng := testseed.Rand(t)
		for _, size := range []int{0, 1, wire.MessageRoom - 1, wire.MessageRoom, wire.MessageRoom + 1, 2 * wire.MessageRoom, wire.Window, 3*wire.Window + 7, 5 << 20} {
			message := make([]byte, size)
			for i := range message {
				message[i] = byte(rng.Uint32())
			}
			sent := make(chan error, 1)
			go func() { sent <- st.Send(message) }()
			got, err := st.Receive(nil)
			require.NoError(t, err)
			require.True(t, bytes.Equal(message, got), "message of %d bytes", size)
			require.NoError(t, <-sent)
		}
		st.CloseSend()
		_, err := st.Receive(nil)
		require.ErrorIs(t, err, io.EOF)
	})
	quiet(t, s, p)
	require.Equal(t, uint64(3), s.Stats().Requests)
}

func TestAStreamHasMetadataAndStatus(t *testing.T) {
	s, p := streamPool(t, nil, nil)
	st, err := p.Stream(t.Context(), "dressed", Metadata(nil).Append("you", "me"))
	require.NoError(t, err)
	header, err := st.Header()
	require.NoError(t, err)
	require.Equal(t, Metadata(nil).Append("header", "for").Append("you", "me"), header)
	got, err := st.Receive([]byte("kept"))
	require.NoError(t, err)
	require.Equal(t, "kept", string(got), "an empty message is delivered")
	_, err = st.Receive(nil)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, CodeNotFound, e.Code)
	require.Equal(t, "no more", e.Message)
	require.True(t, e.Processed)
	require.Equal(t, Metadata(nil).Append("trailer", ""), st.Trailer())
	require.Equal(t, s.address, st.Peer().Address.String())
	quiet(t, s, p)

	st = open(t, p, "echo")
	st.CloseSend()
	header, err = st.Header()
	require.NoError(t, err)
	require.Nil(t, header)
}

func TestHowStreamsFail(t *testing.T) {
	for method, want := range map[string]struct {
		code      Code
		processed bool
	}{
		"panic": {CodeInternal, true}, "exit": {CodeInternal, true}, "unwell": {CodeUnavailable, false},
	} {
		s, p := streamPool(t, nil, &PoolOptions{Size: 4})
		full(t, p)
		_, err := open(t, p, method).Receive(nil)
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, want.code, e.Code, method)
		require.Equal(t, want.processed, e.Processed, method)
		quiet(t, s, p)
		require.Equal(t, 4, p.Stats().Slots, "a stream costs no slot")
	}
	s := serve(t, echo, nil)
	p := newPool(t, nil, s.address)
	_, err := open(t, p, "echo").Receive(nil)
	require.Equal(t, CodeUnimplemented, CodeOf(err))
	_, err = p.Stream(t.Context(), "echo", make([]byte, MaxMetadataBytes+1))
	require.Equal(t, CodeResourceExhausted, CodeOf(err))
	_, err = p.Stream(t.Context(), "echo", []byte("k=v"))
	require.Equal(t, CodeInvalidArgument, CodeOf(err))
	_, err = p.Stream(t.Context(), strings.Repeat("m", MaxMethodBytes+1), nil)
	require.Equal(t, CodeInvalidArgument, CodeOf(err))
}

// A server may send "not processed" for a stream that it has answered in part. A client
// that then retried the stream could lose messages that it has not received yet.
func TestAStreamThatHasBegunCountsAsProcessed(t *testing.T) {
	s, p := streamPool(t, nil, nil)
	st := open(t, p, "unwell in between")
	var e *Error
	until(t, "the stream has ended", func() bool { return errors.As(st.Send(nil), &e) })
	require.Equal(t, CodeUnavailable, e.Code)
	require.True(t, e.Processed)
	message, err := st.Receive(nil)
	require.NoError(t, err)
	require.Equal(t, "begun", string(message))
	_, err = st.Receive(nil)
	require.ErrorAs(t, err, &e)
	require.True(t, e.Processed)
	quiet(t, s, p)
}

// The rest of a message that was too long was delivered as a message.
func TestNothingIsReceivedAfterATooLongMessage(t *testing.T) {
	var s stream
	s.init(new(conn.Outbox), 0, 1, 100)
	s.ctx = t.Context()
	for _, p := range []struct {
		size int
		more bool
	}{{60, true}, {60, true}, {3, false}, {4, false}} {
		require.NoError(t, s.takeMessage(make([]byte, p.size), p.more))
	}
	for range 3 {
		message, err := s.receive([]byte("kept"))
		require.Equal(t, CodeResourceExhausted, CodeOf(err))
		require.Equal(t, "kept", string(message))
	}
}

// Streams take no slot: a pool of one slot makes calls while many streams are open.
func TestStreamsTakeNoSlot(t *testing.T) {
	s, p := streamPool(t, &ServerOptions{MaxStreams: 3}, &PoolOptions{Size: 1, MaxStreams: 4})
	var open3 []*ClientStream
	for range 3 {
		open3 = append(open3, open(t, p, "wait"))
	}
	until(t, "the streams count as load", func() bool { return s.Stats().InFlight == 3 && s.Stats().Streams == 3 })
	require.Equal(t, 1, s.Stats().Slots)
	for range 100 {
		_, err := p.Call(t.Context(), "m", nil, nil)
		require.NoError(t, err)
	}
	_, err := p.Stream(t.Context(), "wait", nil)
	require.ErrorIs(t, err, ErrPoolBusy, "the server's limit per connection")
	other := newPool(t, &PoolOptions{Size: 1, MaxStreams: 4}, s.address)
	_, err = open(t, other, "wait").Receive(nil)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, CodeResourceExhausted, e.Code)
	require.False(t, e.Processed)
	for _, st := range open3 {
		st.Close()
		_, err := st.Receive(nil)
		require.ErrorIs(t, err, context.Canceled)
	}
	quiet(t, s, p)
}

func TestStreamsAreSpreadOverTheServers(t *testing.T) {
	var addresses []string
	var servers []*testServer
	for range 4 {
		s := serve(t, echo, &ServerOptions{StreamHandler: streams})
		servers, addresses = append(servers, s), append(addresses, s.address)
	}
	p := newPool(t, &PoolOptions{Size: 8}, addresses...)
	until(t, "all servers are connected", func() bool { return connected(p) == 4 })
	for range 12 {
		open(t, p, "wait")
	}
	for _, s := range servers {
		until(t, "each has its share", func() bool { return s.Stats().Streams == 3 })
	}
}

// A stream that is not read has at most a window of messages waiting, and delays neither
// calls nor other streams.
func TestAStreamThatIsNotReadStopsItsSenderOnly(t *testing.T) {
	s, p := streamPool(t, nil, nil)
	st := open(t, p, "flood")
	until(t, "the window is used up", func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.mu.window < wire.MessageCost(1)
	})
	st.mu.Lock()
	require.LessOrEqual(t, len(st.mu.data), wire.Window)
	st.mu.Unlock()
	_, err := p.Call(t.Context(), "m", make([]byte, 1<<20), nil)
	require.NoError(t, err)
	other := open(t, p, "echo")
	require.NoError(t, other.Send([]byte("x")))
	got, err := other.Receive(nil)
	require.NoError(t, err)
	require.Equal(t, "x", string(got))
	other.Close()
	for range 1000 { // it continues where it stopped
		got, err := st.Receive(nil)
		require.NoError(t, err)
		require.Len(t, got, 10_000)
	}
	st.Close()
	quiet(t, s, p)

	// The same in the other direction.
	st = open(t, p, "wait")
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan int)
	go func() {
		n := 0
		for ctx.Err() == nil && st.Send(make([]byte, 10_000)) == nil {
			n++
		}
		sent <- n
	}()
	until(t, "the window is used up", func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.mu.credit < wire.MessageCost(1)
	})
	cancel()
	st.Close()
	require.LessOrEqual(t, <-sent, wire.Window/wire.MessageCost(10_000)+1)
	quiet(t, s, p)
}

func TestAStreamEndsWithItsContext(t *testing.T) {
	deadlines := make(chan time.Duration, 1)
	inBubble(t, echo, &ServerOptions{StreamHandler: func(ctx context.Context, _ string, s *ServerStream) error {
		deadline, _ := ctx.Deadline()
		deadlines <- time.Until(deadline)
		_, err := s.Receive(nil)
		return err
	}}, func(t *testing.T, s *testServer, l *pipes) {
		p := newPool(t, &PoolOptions{Size: 1, Dialer: l.dial}, "pipe")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		st, err := p.Stream(ctx, "m", nil)
		require.NoError(t, err)
		require.Equal(t, time.Hour, <-deadlines, "silence does not end it")
		start := time.Now()
		_, err = st.Receive(nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Hour, time.Since(start))
		synctest.Wait()
		require.Zero(t, p.Stats().Streams)
		require.Zero(t, s.Stats().Streams)
		require.Zero(t, p.Stats().Broken)

		ctx, cancel = context.WithCancel(t.Context())
		st, err = p.Stream(ctx, "m", nil)
		require.NoError(t, err)
		<-deadlines
		cancel()
		_, err = st.Receive(nil)
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		require.Zero(t, p.Stats().Streams)
		require.Zero(t, s.Stats().Streams)
	})
}

func TestALostConnectionEndsItsStreams(t *testing.T) {
	s, p := streamPool(t, nil, nil)
	st := open(t, p, "wait")
	until(t, "the stream is open", func() bool { return s.Stats().Streams == 1 })
	s.stop()
	_, err := st.Receive(nil)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, CodeUnavailable, e.Code)
	require.True(t, e.Processed)
	require.NotErrorIs(t, err, io.EOF, "the stream failed")
	require.ErrorAs(t, st.Send(nil), &e)
	quiet(t, s, p)
	require.NoError(t, p.Close())
	_, err = p.Stream(t.Context(), "wait", nil)
	require.ErrorIs(t, err, ErrPoolClosed)
}

func TestShutdownLetsStreamsFinish(t *testing.T) {
	s, p := streamPool(t, nil, nil)
	st := open(t, p, "echo")
	until(t, "the stream is open", func() bool { return s.Stats().Streams == 1 })
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(context.Background()) }()
	until(t, "the pool has no slot", func() bool { return p.Stats().Slots == 0 })
	require.NoError(t, st.Send([]byte("still here")))
	got, err := st.Receive(nil)
	require.NoError(t, err)
	require.Equal(t, "still here", string(got))
	st.CloseSend()
	_, err = st.Receive(nil)
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, <-ended)
}

func TestAStreamsMessageThatIsTooLargeIsAnError(t *testing.T) {
	s, p := streamPool(t, nil, nil)
	st := open(t, p, "echo")
	require.Equal(t, CodeResourceExhausted, CodeOf(st.Send(make([]byte, MaxRequestBytes+1))))
	var small stream
	small.init(nil, 0, 1, 10)
	small.ctx = t.Context()
	require.NoError(t, small.takeMessage(make([]byte, 6), true))
	require.NoError(t, small.takeMessage(make([]byte, 6), false))
	_, err := small.receive([]byte("what was there before does not count"))
	require.Equal(t, CodeResourceExhausted, CodeOf(err))
	st.Close()
	quiet(t, s, p)
}

func TestAffordable(t *testing.T) {
	for n := range 3 * wire.MaxPayload / 64 {
		n *= 64
		for credit := 0; credit < wire.Window; credit += 997 {
			allowed, cost, ok := affordable(n, credit)
			want := 0
			for rest := allowed; ; rest -= wire.MessageRoom {
				if want += wire.MessageCost(min(rest, wire.MessageRoom)); rest <= wire.MessageRoom {
					break
				}
			}
			switch {
			case !ok:
				require.Less(t, credit, wire.MessageCost(min(n, 1)))
			case cost != want || cost > credit || n > 0 && allowed == 0:
				t.Fatalf("%d of %d bytes for %d of %d", allowed, n, cost, credit)
			}
		}
	}
}

// A stream, or a call next to it, is cancelled at every byte of the exchange. The other
// one, and the streams and calls after it, get their own responses.
func TestCancelAtEveryByteOfAStream(t *testing.T) {
	const (
		bytesOfStream = 7*wire.HeaderSize + 14 + 4 + 4 + 4*(4+12) + 4 + 10
		bytesOfCall   = 2*wire.HeaderSize + 18 + 16 + 1 + 2*len("beside 000")
	)
	t.Run("alone", func(t *testing.T) {
		cancelAtEveryByte(t, bytesOfStream, func(ctx context.Context, t *testing.T, p *Pool, k int64) error {
			return streamTwice(ctx, t, p, fmt.Sprintf("cancel %03d", k))
		})
	})
	// Runs one exchange in a goroutine and the other here, and returns the error of the one
	// that was cancelled.
	beside := func(t *testing.T, other, cancelled func() error) error {
		ended := make(chan error, 1)
		go func() { ended <- other() }()
		err := cancelled()
		require.NoError(t, <-ended)
		return err
	}
	t.Run("beside a call", func(t *testing.T) {
		cancelAtEveryByte(t, bytesOfStream+bytesOfCall, func(ctx context.Context, t *testing.T, p *Pool, k int64) error {
			return beside(t, func() error { return callOnce(t.Context(), t, p, fmt.Sprintf("beside %03d", k)) },
				func() error { return streamTwice(ctx, t, p, fmt.Sprintf("cancel %03d", k)) })
		})
	})
	t.Run("a call beside it", func(t *testing.T) {
		cancelAtEveryByte(t, bytesOfStream+bytesOfCall, func(ctx context.Context, t *testing.T, p *Pool, k int64) error {
			return beside(t, func() error { return streamTwice(t.Context(), t, p, fmt.Sprintf("beside %03d", k)) },
				func() error { return callOnce(ctx, t, p, fmt.Sprintf("cancel %03d", k)) })
		})
	})
}

// cancelAtEveryByte repeats an exchange and cancels it each time one byte later.
func cancelAtEveryByte(t *testing.T, size int, exchange func(ctx context.Context, t *testing.T, p *Pool, k int64) error) {
	var tr trip
	s, p := streamPool(t, nil, &PoolOptions{Size: 2, MaxWait: time.Minute, SilenceTimeout: time.Minute, Dialer: func(ctx context.Context, address string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", address)
		return &tripConn{conn, &tr}, err
	}})
	full(t, p)
	cancelled := 0
	for k := range int64(size + 20) {
		ctx, cancel := context.WithCancel(t.Context())
		tr.arm(k, cancel)
		if err := exchange(ctx, t, p, k); err != nil {
			require.ErrorIs(t, err, context.Canceled)
			cancelled++
		}
		tr.disarm()
		cancel()
		require.NoError(t, streamTwice(t.Context(), t, p, fmt.Sprintf("after %03d", k)))
		require.NoError(t, callOnce(t.Context(), t, p, "call"))
	}
	require.NotZero(t, cancelled)
	quiet(t, s, p)
	require.Zero(t, p.Stats().Broken)
	require.Zero(t, s.Stats().Faults)
}

// streamTwice sends two messages on a stream to an echo and receives them.
func streamTwice(ctx context.Context, t *testing.T, p *Pool, text string) (err error) {
	st, err := p.Stream(ctx, "echo", Metadata(nil).Append("m", "x"))
	if err != nil {
		return err
	}
	defer st.Close()
	for i := range 2 {
		message := fmt.Appendf(nil, "%s %d", text, i)
		if err := st.Send(message); err != nil {
			return err
		}
		want := string(message)
		clear(message) // it is the caller's again
		got, err := st.Receive(nil)
		if err != nil {
			return err
		}
		if string(got) != want {
			t.Errorf("%q instead of %q", got, want)
		}
	}
	st.CloseSend()
	if _, err = st.Receive(nil); errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// callOnce calls an echo.
func callOnce(ctx context.Context, t *testing.T, p *Pool, text string) error {
	request := []byte(text)
	out, err := p.Call(ctx, "m", request, nil)
	clear(request) // the caller may reuse it
	if err == nil && string(out) != text {
		t.Errorf("%q instead of %q", out, text)
	}
	return err
}

// Many concurrent streams and calls with messages of all sizes, some of them cancelled.
func TestStreamsAndCallsTogether(t *testing.T) {
	s, p := streamPool(t, nil, &PoolOptions{Size: 8, MaxWait: time.Minute})
	var wg sync.WaitGroup
	var done atomic.Int64
	for worker := range 16 {
		rng := testseed.Rand(t)
		wg.Go(func() {
			for range 20 {
				if worker%4 == 0 {
					if _, err := p.Call(t.Context(), "m", make([]byte, rng.IntN(100_000)), nil); err != nil {
						t.Error(err)
					}
					continue
				}
				st, err := p.Stream(t.Context(), "echo", nil)
				if err != nil {
					t.Error(err)
					return
				}
				for i := range rng.IntN(10) {
					message := bytes.Repeat([]byte{byte(worker), byte(i)}, rng.IntN(50_000))
					if err := st.Send(message); err != nil {
						t.Error(err)
					}
					if got, err := st.Receive(nil); err != nil || !bytes.Equal(message, got) {
						t.Errorf("got %d bytes of %d: %v", len(got), len(message), err)
					}
					done.Add(1)
				}
				st.Close()
			}
		})
	}
	wg.Wait()
	require.NotZero(t, done.Load())
	quiet(t, s, p)
	require.Zero(t, s.Stats().Faults)
	require.Zero(t, p.Stats().Broken)
}

// A connection that fails during a stream is a failure. Its cause io.EOF must not match the
// end of the stream.
func TestFailedConnectionIsNotTheEndOfAStream(t *testing.T) {
	begun := make(chan struct{})
	s := serve(t, echo, &ServerOptions{StreamHandler: func(ctx context.Context, _ string, _ *ServerStream) error {
		close(begun)
		<-ctx.Done()
		return nil
	}})
	st, err := newPool(t, nil, s.address).Stream(t.Context(), "any", nil)
	require.NoError(t, err)
	<-begun
	s.stop()
	_, err = st.Receive(nil)
	require.Equal(t, CodeUnavailable, CodeOf(err))
	require.NotErrorIs(t, err, io.EOF)
}

// The connection may fail while its reader handles the STATUS of a stream.
func TestAStatusAfterTheConnectionHasFailed(t *testing.T) {
	s := serve(t, echo, &ServerOptions{StreamHandler: streams})
	p := newPool(t, nil, s.address)
	stream, err := p.Stream(t.Context(), "echo", nil)
	require.NoError(t, err)
	stream.transport.fail(errors.New("connection reset"))
	stream.takeStatus(wire.Status{}, true, nil)
	_, err = stream.Receive(nil)
	require.Equal(t, CodeUnavailable, CodeOf(err))
	require.Zero(t, p.Stats().Streams)
}
