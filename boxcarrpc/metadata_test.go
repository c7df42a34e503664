package boxcarrpc

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/internal/wire"
	"docstore/internal/race"
)

// mirror returns the request, with its metadata as the header and the request's length in x
// as the trailer.
func mirror(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
	if err := SetHeader(ctx, MetadataOf(ctx)); err != nil {
		return dst, err
	}
	if method == "bare" {
		return append(dst, request...), nil
	}
	if err := SetTrailer(ctx, Metadata(nil).Append("method", method)); err != nil {
		return dst, err
	}
	if method == "fail" {
		return dst, &Error{Code: CodeNotFound, Message: "no " + string(request)}
	}
	return append(dst, request...), nil
}

func TestMetadataIsPairs(t *testing.T) {
	m := Metadata(nil).Append("a", "1").Append("b-bin", "\x00\xff").Append("a", "").Append("long", strings.Repeat("v", 300))
	value, ok := m.Get("a")
	require.True(t, ok)
	require.Equal(t, "1", value, "the first value")
	_, ok = m.Get("c")
	require.False(t, ok)
	require.Equal(t, map[string]string{"a": "", "b-bin": "\x00\xff", "long": strings.Repeat("v", 300)}, maps.Collect(m.All()))
	for key := range m.All() {
		require.Equal(t, "a", key)
		break
	}
	require.NoError(t, m.check())
	for n := 1; n < len(m); n++ {
		require.Equal(t, n == 4 || n == 13 || n == 16, m[:n].check() == nil, "%d", n)
	}
	require.Equal(t, CodeInvalidArgument, CodeOf(Metadata(nil).Append("", "v").check()))
	require.Equal(t, CodeResourceExhausted, CodeOf(Metadata(nil).Append("k", strings.Repeat("v", MaxMetadataBytes)).check()))
}

// Metadata is sent both ways with data of any size, also if that fills frames.
func TestMetadataGoesWithRequestAndResponse(t *testing.T) {
	s := serve(t, mirror, nil)
	p := newPool(t, &PoolOptions{Size: 1}, s.address)
	longest := Metadata(nil).Append("k", strings.Repeat("v", MaxMetadataBytes-5-len(Metadata(nil).Append("method", "bare"))))
	for _, m := range []Metadata{nil, Metadata(nil).Append("k", "v"), longest} {
		room := wire.RequestRoom("bare") - wire.RequestMetadataBytes(m)
		back := wire.ResponseRoom - wire.ResponseMetadataBytes(m, nil)
		for _, size := range []int{0, 1, room - 1, room, room + 1, back - 1, back, back + 1, 1 << 20} {
			request := []byte(strings.Repeat("x", size))
			info := CallInfo{Metadata: m}
			out, err := p.CallWith(t.Context(), "bare", request, []byte("before"), &info)
			require.NoError(t, err)
			require.Equal(t, "before"+string(request), string(out))
			require.Equal(t, string(m), string(info.Header))
			require.Nil(t, info.Trailer)
			require.Equal(t, 1, info.Attempts)
			require.Zero(t, info.Slot)
			require.Equal(t, s.address, info.Server.Address.String())
		}
	}
	until(t, "the server holds nothing", func() bool { return s.Stats().BufferBytes == 0 })
}

func TestMetadataGoesWithAnError(t *testing.T) {
	s := serve(t, mirror, nil)
	p := newPool(t, nil, s.address)
	info := CallInfo{Metadata: Metadata(nil).Append("k", "v")}
	_, err := p.CallWith(t.Context(), "fail", []byte("such"), nil, &info)
	require.Equal(t, CodeNotFound, CodeOf(err))
	require.ErrorContains(t, err, "no such")
	require.Equal(t, info.Metadata, info.Header)
	require.Equal(t, Metadata(nil).Append("method", "fail"), info.Trailer)

	// The previous content of a CallInfo is replaced.
	_, err = p.CallWith(t.Context(), MethodEcho, nil, nil, &info)
	require.NoError(t, err)
	require.Nil(t, info.Header)
	require.Nil(t, info.Trailer)
}

func TestMetadataThatCannotBeSent(t *testing.T) {
	s := serve(t, func(ctx context.Context, method string, _, dst []byte) ([]byte, error) {
		long := Metadata(nil).Append("k", strings.Repeat("v", MaxMetadataBytes/2))
		if method == "long" {
			return dst, errors.Join(SetHeader(ctx, long), SetTrailer(ctx, long))
		}
		return dst, SetTrailer(ctx, Metadata("k=v"))
	}, nil)
	p := newPool(t, nil, s.address)
	for _, m := range []Metadata{Metadata("k=v"), make(Metadata, MaxMetadataBytes+1)} {
		info := CallInfo{Metadata: m}
		_, err := p.CallWith(t.Context(), "m", nil, nil, &info)
		require.Contains(t, []Code{CodeInvalidArgument, CodeResourceExhausted}, CodeOf(err))
		require.Equal(t, -1, info.Slot)
	}
	require.Zero(t, s.Stats().Requests)
	_, err := p.Call(t.Context(), "long", nil, nil)
	require.Equal(t, CodeResourceExhausted, CodeOf(err))
	_, err = p.Call(t.Context(), "malformed", nil, nil)
	require.Equal(t, CodeInvalidArgument, CodeOf(err))
	require.Error(t, SetHeader(t.Context(), nil), "not the context of a handler")
}

// A peer that sends malformed metadata is disconnected.
func TestMalformedMetadataEndsTheConnection(t *testing.T) {
	s := serve(t, mirror, nil)
	c := dialRaw(t, s.address)
	c.hello()
	c.send(lease)
	require.Equal(t, wire.TypeGrant, c.next().Type)
	c.send(wire.AppendRequestWith(nil, 0, wire.Request{Sequence: 1}, "m", []byte("k=v"), nil))
	c.ends()
	until(t, "the fault is counted", func() bool { return s.Stats().Faults == 1 })
}

// A handler can find its client and slot.
func TestAHandlerKnowsItsCall(t *testing.T) {
	known := make(chan []any, 1)
	tell := func(ctx context.Context) {
		ctx = context.WithValue(ctx, known, nil) // as an interceptor might do
		known <- []any{PeerOf(ctx).Name, SlotOf(ctx), string(MetadataOf(ctx))}
	}
	s := serve(t, func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
		tell(ctx)
		return dst, nil
	}, &ServerOptions{StreamHandler: func(ctx context.Context, _ string, _ *ServerStream) error {
		tell(ctx)
		return SetTrailer(ctx, nil)
	}})
	p := newPool(t, &PoolOptions{Size: 1, Name: "me"}, s.address)
	m := Metadata(nil).Append("k", "v")
	_, err := p.CallWith(t.Context(), "m", nil, nil, &CallInfo{Metadata: m})
	require.NoError(t, err)
	require.Equal(t, []any{"me", 0, string(m)}, <-known)
	stream, err := p.Stream(t.Context(), "m", m)
	require.NoError(t, err)
	_, err = stream.Receive(nil)
	require.ErrorContains(t, err, "not that of a request")
	require.Equal(t, []any{"me", -1, string(m)}, <-known)
	require.Nil(t, PeerOf(t.Context()))
	require.Equal(t, -1, SlotOf(t.Context()))
	require.Nil(t, MetadataOf(t.Context()))
}

// Allocations of a call with interceptors: its context on the server, and none on the
// client.
func TestACallAllocatesOnce(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector empties pools")
	}
	var codes [CodeUnauthenticated + 1]int // used by one call at a time
	s := serve(t, echo, &ServerOptions{
		Authenticate: func(*Peer, string) (Identity, error) { return Identity{TokenIdentity, "me"}, nil },
		Authorize: func(ctx context.Context, _ string) error {
			if PeerOf(ctx).Identity.Name != "me" || SlotOf(ctx) != 0 || MetadataOf(ctx) != nil {
				return errors.New("who?")
			}
			return nil
		},
		Interceptors: []func(Handler) Handler{func(next Handler) Handler {
			return func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
				out, err := next(ctx, method, request, dst)
				codes[CodeOf(err)]++
				return out, err
			}
		}},
	})
	p := newPool(t, &PoolOptions{Size: 1, Interceptors: []func(Caller) Caller{func(next Caller) Caller {
		return func(ctx context.Context, method string, request, dst []byte, info *CallInfo) ([]byte, error) {
			out, err := next(ctx, method, request, dst, info)
			codes[CodeOf(err)]++
			return out, err
		}
	}}}, s.address)
	full(t, p)
	limited, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	request, dst := make([]byte, 16), make([]byte, 0, 64)
	for _, ctx := range []context.Context{limited, context.Background()} { // the second ends by CallTimeout
		call := func() {
			if _, err := p.Call(ctx, "m", request, dst); err != nil {
				t.Fatal(err)
			}
		}
		require.LessOrEqual(t, testing.AllocsPerRun(2000, call), 1.0)
	}
}
