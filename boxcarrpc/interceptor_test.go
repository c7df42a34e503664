package boxcarrpc

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A diary records events in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) add(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

func TestInterceptorsAreAroundCalls(t *testing.T) {
	var d diary
	server := func(name string) func(Handler) Handler {
		return func(next Handler) Handler {
			return func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
				d.add(name + " before " + method)
				out, err := next(ctx, method, append([]byte(name), request...), dst)
				d.add(name + " after")
				return out, err
			}
		}
	}
	client := func(name string) func(Caller) Caller {
		return func(next Caller) Caller {
			return func(ctx context.Context, method string, request, dst []byte, info *CallInfo) ([]byte, error) {
				d.add(name + " before")
				info.Metadata = info.Metadata[:len(info.Metadata):len(info.Metadata)].Append(name, "")
				out, err := next(ctx, method, request, dst, info)
				header, _ := info.Header.Get("c1")
				d.add(name + " after" + header)
				return out, err
			}
		}
	}
	s := serve(t, mirror, &ServerOptions{Interceptors: []func(Handler) Handler{server("s1"), server("s2")}})
	p := newPool(t, &PoolOptions{Size: 1, Interceptors: []func(Caller) Caller{client("c1"), client("c2")}}, s.address)

	m := Metadata(nil).Append("mine", "")
	info := CallInfo{Metadata: m}
	out, err := p.CallWith(t.Context(), "m", []byte("x"), []byte("dst"), &info)
	require.NoError(t, err)
	require.Equal(t, "dsts2s1x", string(out))
	require.Equal(t, []string{"c1 before", "c2 before", "s1 before m", "s2 before m", "s2 after", "s1 after", "c2 after", "c1 after"}, d.read())
	require.Equal(t, Metadata(nil).Append("mine", "").Append("c1", "").Append("c2", ""), info.Header, "the metadata that the server received")
	require.Equal(t, m, info.Metadata, "unchanged")
	require.Equal(t, 1, info.Attempts)

	_, err = p.Call(t.Context(), MethodEcho, nil, nil)
	require.NoError(t, err, "also without a CallInfo")
	require.Contains(t, d.read(), "s1 before "+MethodEcho, "built-in methods are intercepted")
}

// An interceptor may answer itself. What it appends to dst is ignored if it returns an
// error.
func TestAnInterceptorAnswersItself(t *testing.T) {
	s := serve(t, echo, nil)
	refused := errors.New("not today")
	p := newPool(t, &PoolOptions{Interceptors: []func(Caller) Caller{func(next Caller) Caller {
		return func(ctx context.Context, method string, request, dst []byte, info *CallInfo) ([]byte, error) {
			if method == "refused" {
				return append(dst, "nonsense"...), refused
			}
			return next(ctx, method, request, dst, info)
		}
	}}}, s.address)
	info := CallInfo{Attempts: 5}
	out, err := p.CallWith(t.Context(), "refused", nil, []byte("dst"), &info)
	require.ErrorIs(t, err, refused)
	require.Equal(t, "dst", string(out))
	require.Equal(t, CallInfo{Slot: -1}, info)
	require.Zero(t, s.Stats().Requests)
}

func TestInterceptorsAreAroundStreams(t *testing.T) {
	var d diary
	s := serve(t, echo, &ServerOptions{
		StreamHandler: func(_ context.Context, method string, stream *ServerStream) error {
			if err := stream.Send(stream.Metadata()); err != nil {
				return err
			}
			if method == "wait" {
				_, err := stream.Receive(nil)
				return err
			}
			return &Error{Code: CodeNotFound}
		},
		StreamInterceptors: []func(StreamHandler) StreamHandler{func(next StreamHandler) StreamHandler {
			return func(ctx context.Context, method string, stream *ServerStream) error {
				d.add("server " + method)
				return next(ctx, method, stream)
			}
		}},
	})
	p := newPool(t, &PoolOptions{StreamInterceptors: []func(StreamOpener) StreamOpener{func(next StreamOpener) StreamOpener {
		return func(ctx context.Context, method string, metadata Metadata) (*ClientStream, error) {
			stream, err := next(ctx, method, metadata.Append("c", ""))
			if err == nil {
				stream.OnEnd(func(err error) { d.add("ended " + CodeOf(err).String()) })
			}
			return stream, err
		}
	}}}, s.address)

	stream, err := p.Stream(t.Context(), "fail", nil)
	require.NoError(t, err)
	message, err := stream.Receive(nil)
	require.NoError(t, err)
	require.Equal(t, Metadata(nil).Append("c", ""), Metadata(message))
	_, err = stream.Receive(nil)
	require.Equal(t, CodeNotFound, CodeOf(err))
	until(t, "OnEnd was called", func() bool { return slices.Equal(d.read(), []string{"server fail", "ended not found"}) })
	stream.OnEnd(func(err error) { d.add("late " + CodeOf(err).String()) })
	require.Equal(t, "late not found", d.read()[2], "at once")

	stream, err = p.Stream(t.Context(), "wait", nil)
	require.NoError(t, err)
	_, err = stream.Receive(nil)
	require.NoError(t, err)
	stream.Close()
	require.Equal(t, "ended canceled", d.read()[4], "OnEnd runs in Close")

	stream, err = p.Stream(t.Context(), MethodBoard, nil)
	require.NoError(t, err)
	_, err = stream.Receive(nil)
	require.NoError(t, err)
	_, err = stream.Receive(nil)
	require.ErrorIs(t, err, io.EOF)
	require.Contains(t, d.read(), "server "+MethodBoard, "built-in methods are intercepted")
	until(t, "OnEnd was called with success", func() bool { return slices.Contains(d.read(), "ended ok") })
}
