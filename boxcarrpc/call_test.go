package boxcarrpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/wire"
	"docstore/internal/testseed"
)

func TestEchoOfEverySize(t *testing.T) {
	s := serve(t, echo, nil)
	for _, lanes := range []int{1, 64} {
		t.Run(fmt.Sprintf("LanesPerConn=%d", lanes), func(t *testing.T) {
			p := newPool(t, &PoolOptions{Size: 8, LanesPerConn: lanes}, s.address)
			rng := testseed.Rand(t)
			for _, size := range []int{
				0, 1, 100, wire.MaxPayload - 100, wire.RequestRoom("echo"), wire.RequestRoom("echo") + 1,
				wire.ResponseRoom, wire.ResponseRoom + 1, wire.MaxPayload, 3*wire.MaxPayload + 17, 1 << 20, MaxRequestBytes,
			} {
				request := make([]byte, size)
				for i := range request {
					request[i] = byte(rng.Uint32())
				}
				out, err := p.Call(t.Context(), "echo", request, []byte("before"))
				require.NoError(t, err)
				require.True(t, bytes.Equal(append([]byte("before"), request...), out), "size %d", size)
			}
			require.Zero(t, p.members.buffers.used.Load())
			until(t, "the server has freed the requests", func() bool { return s.Stats().BufferBytes == 0 })
		})
	}
}

func TestManyCallersGetTheirOwnAnswers(t *testing.T) {
	var addresses []string
	for range 3 {
		addresses = append(addresses, serve(t, echo, nil).address)
	}
	for _, lanes := range []int{1, 3, 64} {
		t.Run(fmt.Sprintf("LanesPerConn=%d", lanes), func(t *testing.T) {
			p := newPool(t, &PoolOptions{Size: 32, LanesPerConn: lanes}, addresses...)
			var wg sync.WaitGroup
			for caller := range 32 {
				wg.Go(func() {
					var dst []byte
					for i := range 100 {
						request := bytes.Repeat(fmt.Appendf(nil, "%d/%d ", caller, i), 1+i*i%3000)
						var err error
						dst, err = p.Call(t.Context(), "echo", request, dst[:0])
						if err != nil || !bytes.Equal(dst, request) {
							t.Errorf("caller %d, call %d: %v, right answer: %v", caller, i, err, bytes.Equal(dst, request))
							return
						}
					}
				})
			}
			wg.Wait()
			full(t, p)
			require.Zero(t, p.Stats().Failed)
		})
	}
}

func TestHandlerErrors(t *testing.T) {
	var answer error
	s := serve(t, func(_ context.Context, _ string, _, dst []byte) ([]byte, error) {
		return append(dst, "ignored"...), answer
	}, nil)
	p := newPool(t, &PoolOptions{Size: 2, MaxRetries: -1}, s.address)
	for _, c := range []struct {
		answer    error
		code      Code
		message   string
		processed bool
		is        error
	}{
		{&Error{Code: CodeNotFound, Message: "no such document"}, CodeNotFound, "no such document", true, nil},
		{fmt.Errorf("wrapped: %w", &Error{Code: CodeAborted}), CodeAborted, "", true, nil},
		{errors.New("disk on fire"), CodeUnknown, "disk on fire", true, nil},
		{&Error{Code: CodeOK}, CodeUnknown, "", true, nil},
		{&Error{Code: CodeUnavailable, Message: "not marked"}, CodeUnavailable, "not marked", true, nil},
		{fmt.Errorf("asking the next: %w", ErrPoolBusy), CodeResourceExhausted, "all slots of the pool are busy", true, nil},
		{NotProcessed(&Error{Code: CodeUnavailable, Message: "elsewhere"}), CodeUnavailable, "elsewhere", false, nil},
		{NotProcessed(&Error{Code: CodeResourceExhausted}), CodeResourceExhausted, "", false, nil},
		{NotProcessed(&Error{Code: CodeNotFound, Message: "not here"}), CodeUnavailable, "not here", false, nil},
		{NotProcessed(errors.New("starting")), CodeUnavailable, "starting", false, nil},
		{fmt.Errorf("later: %w", NotProcessed(errors.New("starting"))), CodeUnknown, "later: starting", true, nil},
		{context.DeadlineExceeded, CodeDeadlineExceeded, "context deadline exceeded", true, context.DeadlineExceeded},
		{context.Canceled, CodeCanceled, "context canceled", true, context.Canceled},
		{&Error{Code: wire.MaxCode}, wire.MaxCode, "", true, nil},
		{&Error{Code: wire.MaxCode + 1, Message: "no success"}, CodeUnknown, "no success", true, nil},
		{&Error{Code: math.MaxUint32}, CodeUnknown, "", true, nil},
		{&Error{Code: 77, Message: "of another world"}, 77, "of another world", true, nil},
		{&Error{Code: CodeInternal, Message: "a" + strings.Repeat("ä", MaxMessageBytes)}, CodeInternal, "a" + strings.Repeat("ä", MaxMessageBytes/2-1), true, nil},
		{&Error{Code: CodeInternal, Message: string(make([]byte, 1<<20))}, CodeInternal, string(make([]byte, MaxMessageBytes)), true, nil},
	} {
		answer = c.answer
		out, err := p.Call(t.Context(), "m", nil, []byte("dst"))
		require.Equal(t, "dst", string(out))
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, c.code, e.Code)
		require.Equal(t, c.message, e.Message)
		require.Equal(t, c.processed, e.Processed)
		require.Equal(t, c.code, CodeOf(err))
		if c.is != nil {
			require.ErrorIs(t, err, c.is)
		}
	}
	full(t, p)
	require.Zero(t, p.Stats().Lost, "an error costs no slot")
}

func TestPanicCostsTheSlotOnly(t *testing.T) {
	var calls atomic.Int32
	s := serve(t, func(_ context.Context, _ string, request, dst []byte) ([]byte, error) {
		if calls.Add(1) == 1 {
			panic("handler")
		}
		return append(dst, request...), nil
	}, nil)
	p := newPool(t, &PoolOptions{Size: 1}, s.address)
	_, err := p.Call(t.Context(), "m", nil, nil)
	require.Equal(t, CodeInternal, CodeOf(err))
	require.Equal(t, uint64(1), p.Stats().Lost)
	out, err := p.Call(t.Context(), "m", []byte("again"), nil)
	require.NoError(t, err)
	require.Equal(t, "again", string(out))
	require.Equal(t, uint64(1), s.Stats().Panics)
	require.Equal(t, 1, s.Stats().Slots)
	require.Equal(t, uint64(2), p.Stats().Leases)
}

func TestMoreCallsThanSlotsAreRefusedAtOnce(t *testing.T) {
	g := newGate()
	s := serve(t, g.handler, nil)
	p := newPool(t, &PoolOptions{Size: 3}, s.address)
	full(t, p)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			_, err := p.Call(context.Background(), "m", nil, nil)
			if err != nil {
				t.Error(err)
			}
		})
		<-g.entered
	}
	out, err := p.Call(t.Context(), "m", nil, []byte("dst"))
	require.ErrorIs(t, err, ErrPoolBusy)
	require.Equal(t, CodeResourceExhausted, CodeOf(err))
	require.Equal(t, "dst", string(out))
	require.Equal(t, uint64(1), p.Stats().Rejected)
	g.release()
	wg.Wait()
}

func TestMaxWaitLetsACallWaitForASlot(t *testing.T) {
	g := newGate()
	s := serve(t, g.handler, nil)
	p := newPool(t, &PoolOptions{Size: 1, MaxWait: time.Minute}, s.address)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			_, err := p.Call(context.Background(), "m", nil, nil)
			if err != nil {
				t.Error(err)
			}
		})
	}
	<-g.entered
	until(t, "the other waits", func() bool { return p.Stats().Waiting == 1 })
	g.release()
	wg.Wait()
}

func TestAtNCallsTheNLowestSlotsAreBusy(t *testing.T) {
	g := newGate()
	a, b := serve(t, g.handler, nil), serve(t, g.handler, nil)
	p := newPool(t, &PoolOptions{Size: 8}, a.address, b.address)
	full(t, p)
	until(t, "the slots are even", func() bool { return a.Stats().Slots == 4 && b.Stats().Slots == 4 })
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for n := 1; n <= 8; n++ {
		wg.Go(func() { _, _ = p.Call(ctx, "m", nil, nil) })
		<-g.entered
		v := p.view()
		for i, slot := range v.Slots {
			if slot.Busy && i >= n {
				// Only among slots of equal number may a later one be busy.
				require.Equal(t, v.Slots[n-1].Number, slot.Number, "at %d calls", n)
			}
		}
	}
	cancel()
	wg.Wait()
}

func TestDeadlineTravelsWithTheRequest(t *testing.T) {
	got := make(chan time.Duration, 1)
	ended := make(chan error, 1)
	s := serve(t, func(ctx context.Context, method string, _, dst []byte) ([]byte, error) {
		deadline, ok := ctx.Deadline()
		if !ok {
			deadline = time.Now().Add(time.Hour)
		}
		got <- time.Until(deadline)
		if method == "wait" {
			<-ctx.Done()
			ended <- ctx.Err()
		}
		return dst, ctx.Err()
	}, nil)
	p := newPool(t, &PoolOptions{Size: 2, CallTimeout: -1}, s.address)
	_, err := p.Call(context.Background(), "m", nil, nil)
	require.NoError(t, err)
	require.Greater(t, <-got, 59*time.Minute, "no deadline")

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = p.Call(ctx, "m", nil, nil)
	require.NoError(t, err)
	require.LessOrEqual(t, <-got, 20*time.Second)

	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = p.Call(ctx, "wait", nil, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, CodeDeadlineExceeded, CodeOf(err))
	require.LessOrEqual(t, <-got, 20*time.Millisecond)
	require.Error(t, <-ended)
	until(t, "the lane is free again", func() bool { return p.Stats().Busy == 0 })
	require.Zero(t, p.Stats().Lost, "a deadline costs no slot")
}

func TestCallTimeoutIsTheDeadlineOfACallWithoutOne(t *testing.T) {
	g := newGate()
	s := serve(t, g.handler, nil)
	for name, one := range map[string]struct {
		timeout time.Duration
		method  string
	}{
		"while the caller reads": {ownReading / 2, "m"},
		"found by the sweeper":   {2 * nearDeadline, "m"},
		"hedged":                 {ownReading / 2, "hedged"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t, &PoolOptions{Size: 1, CallTimeout: one.timeout, Methods: map[string]Method{
				"hedged": {Idempotent: true, HedgeAfter: time.Millisecond},
			}}, s.address)
			start := time.Now()
			_, err := p.Call(context.Background(), one.method, nil, nil)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.GreaterOrEqual(t, time.Since(start), one.timeout)
			until(t, "the lane is free again", func() bool { return p.Stats().Busy == 0 })

			// A call that waits for the only slot.
			q := newPool(t, &PoolOptions{Size: 1, CallTimeout: 20 * time.Millisecond, MaxWait: time.Hour}, s.address)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			busy := make(chan struct{})
			go func() {
				defer close(busy)
				_, _ = q.Call(ctx, "m", nil, nil)
			}()
			until(t, "the slot is busy", func() bool { return q.Stats().Busy == 1 })
			_, err = q.Call(context.Background(), "m", nil, nil)
			require.ErrorIs(t, err, context.DeadlineExceeded)

			// The caller's own context still applies.
			gone, leave := context.WithCancelCause(t.Context())
			leave(io.ErrClosedPipe)
			_, err = q.Call(gone, "m", nil, nil)
			require.ErrorIs(t, err, io.ErrClosedPipe)
			cancel()
			<-busy
		})
	}
}

func TestACancelledLaneStaysBusyUntilTheServerAcknowledges(t *testing.T) {
	entered, proceed := make(chan struct{}), make(chan struct{})
	s := serve(t, func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
		entered <- struct{}{}
		<-ctx.Done()
		<-proceed // a handler that stops slowly
		return append(dst, "too late"...), nil
	}, nil)
	p := newPool(t, &PoolOptions{Size: 1}, s.address)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-entered
		cancel()
	}()
	dst := make([]byte, 3, 100)
	out, err := p.Call(ctx, "m", nil, dst)
	require.ErrorIs(t, err, context.Canceled)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.True(t, e.Processed, "the request may have been processed")
	require.Len(t, out, 3)
	require.Equal(t, 1, p.Stats().Busy)
	_, err = p.Call(t.Context(), "m", nil, nil)
	require.ErrorIs(t, err, ErrPoolBusy)
	close(proceed)
	until(t, "the lane is free again", func() bool { return p.Stats().Busy == 0 })
	require.Equal(t, 1, p.Stats().Slots)
	require.Equal(t, make([]byte, 97), dst[3:100], "dst was written after the call")
}

func TestCancelWithinALargeRequest(t *testing.T) {
	s := serve(t, echo, nil)
	p := newPool(t, &PoolOptions{Size: 4}, s.address)
	rng := testseed.Rand(t)
	request := bytes.Repeat([]byte("abcdefgh"), 1<<18) // 2 MiB
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		stop := time.AfterFunc(time.Duration(rng.IntN(3000))*time.Microsecond, cancel)
		out, err := p.Call(ctx, "m", request, nil)
		if err == nil {
			require.True(t, bytes.Equal(request, out))
		} else {
			require.ErrorIs(t, err, context.Canceled)
		}
		stop.Stop()
		cancel()
		// The caller may reuse the request: a later response must not show this.
		out, err = p.Call(t.Context(), "m", []byte("small"), nil)
		require.NoError(t, err)
		require.Equal(t, "small", string(out))
	}
	until(t, "all lanes are free again", func() bool { return p.Stats().Busy == 0 })
	require.Zero(t, p.Stats().Lost)
	require.Zero(t, p.members.buffers.used.Load())
	until(t, "the server has freed the requests", func() bool { return s.Stats().BufferBytes == 0 })
}

func TestCallThatCannotStartFails(t *testing.T) {
	s := serve(t, echo, nil)
	p := newPool(t, nil, s.address)
	_, err := p.Call(t.Context(), "m", make([]byte, MaxRequestBytes+1), nil)
	require.Equal(t, CodeInvalidArgument, CodeOf(err))
	_, err = p.Call(t.Context(), string(make([]byte, MaxMethodBytes+1)), nil, nil)
	require.Equal(t, CodeInvalidArgument, CodeOf(err))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Call(ctx, "m", nil, nil)
	require.ErrorIs(t, err, context.Canceled)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.False(t, e.Processed)
	require.Zero(t, s.Stats().Requests)
}

func TestWithoutAServerACallWaitsWithinItsContext(t *testing.T) {
	p := newPoolOf(t, nil, discovery.Static("127.0.0.1:1"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := p.Call(ctx, "m", nil, nil)
	require.ErrorIs(t, err, ErrNoServer)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, CodeUnavailable, CodeOf(err))
	require.ErrorIs(t, p.WaitReady(ctx), ErrNoServer)
}

func TestAResponseThatIsTooLargeIsAnError(t *testing.T) {
	s := serve(t, func(_ context.Context, _ string, _, dst []byte) ([]byte, error) {
		return append(dst, make([]byte, MaxResponseBytes+1)...), nil
	}, nil)
	// Making it may take a busy machine a second.
	p := newPool(t, &PoolOptions{Size: 1, SilenceTimeout: time.Minute}, s.address)
	_, err := p.Call(t.Context(), "m", nil, nil)
	require.Equal(t, CodeResourceExhausted, CodeOf(err))
	require.Zero(t, p.Stats().Lost)
}

func TestAResponseBeyondTheBufferBudgetIsAnError(t *testing.T) {
	s := serve(t, echo, nil)
	p := newPool(t, &PoolOptions{Size: 2, BufferBytes: 1 << 20}, s.address)
	_, err := p.Call(t.Context(), "m", make([]byte, 1<<20+1), nil)
	require.Equal(t, CodeResourceExhausted, CodeOf(err))
	out, err := p.Call(t.Context(), "m", make([]byte, 1<<20), nil)
	require.NoError(t, err)
	require.Len(t, out, 1<<20)
	require.Zero(t, p.members.buffers.used.Load())
}

func TestARequestBeyondTheServersBudgetIsRefusedAsNotProcessed(t *testing.T) {
	g := newGate()
	defer g.release()
	s := serve(t, g.handler, &ServerOptions{Budget: budget.New(8 << 20)}) // 1 MiB per client
	p := newPool(t, &PoolOptions{Size: 2, MaxRetries: -1}, s.address)
	full(t, p)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { _, _ = p.Call(t.Context(), "m", make([]byte, 2<<20), nil) })
	<-g.entered // one request of any size is accepted
	for range 3 {
		_, err := p.Call(t.Context(), "m", make([]byte, 2<<20), nil)
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, CodeResourceExhausted, e.Code)
		require.False(t, e.Processed)
	}
	_, err := p.Call(t.Context(), MethodEcho, make([]byte, smallRequest), nil)
	require.NoError(t, err, "a small request is accepted")
	require.Zero(t, p.Stats().Lost)
	g.release()
}

func TestCloseEndsCallsInFlight(t *testing.T) {
	g := newGate()
	s := serve(t, g.handler, nil)
	p := newPool(t, &PoolOptions{Size: 1, MaxWait: time.Minute}, s.address)
	var wg sync.WaitGroup
	for range 2 { // one in its handler, one waiting for a slot
		wg.Go(func() {
			_, err := p.Call(context.Background(), "m", nil, nil)
			if !errors.Is(err, ErrPoolClosed) {
				t.Error(err)
			}
		})
	}
	<-g.entered
	until(t, "the other waits", func() bool { return p.Stats().Waiting == 1 })
	require.NoError(t, p.Close())
	wg.Wait()
	_, err := p.Call(t.Context(), "m", nil, nil)
	require.ErrorIs(t, err, ErrPoolClosed)
	require.ErrorIs(t, p.WaitReady(t.Context()), ErrPoolClosed)
	require.NoError(t, p.Close(), "idempotent")
	until(t, "the server has its slots back", func() bool { return s.Stats().Slots == 0 })
}
