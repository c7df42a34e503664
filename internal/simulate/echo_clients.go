package simulate

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/boxcarotel"
	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/session"
	"docstore/internal/ctxtime"
	"docstore/internal/simulate/chance"
)

// largestCode is the largest code of a response: larger ones become CodeUnknown.
const largestCode = 1<<16 - 1

// wrongf records a wrong result of the echo service.
func (e *echoService) wrongf(format string, args ...any) { e.w.account.wrongf("echo", format, args...) }

// pool returns a pool of a client with the certificate of a name, and closes it when ctx ends.
func (e *echoService) pool(ctx context.Context, name string) *boxcarrpc.Pool {
	config := &tls.Config{MinVersion: tls.VersionTLS13, CurvePreferences: curves, RootCAs: e.credentials.kept, Certificates: []tls.Certificate{e.credentials.of[name]}}
	p, err := boxcarrpc.NewPool(discovery.Static(echoAddress), boxcarotel.InstrumentPool(&boxcarrpc.PoolOptions{
		Size: 1, Name: name, Seed: e.w.config.Seed, Dialer: dialerOf(e.w.clients), TLS: func() (*tls.Config, error) { return config, nil },
	}, &boxcarotel.Options{TracerProvider: noop.NewTracerProvider()}))
	e.w.must(err)
	context.AfterFunc(ctx, func() { e.w.must(p.Close()) })
	return p
}

// call sends requests with metadata and traces, and requests for errors.
func (e *echoService) call(ctx context.Context) {
	p := e.pool(ctx, clientName)
	for d := e.w.chance.Next("call echo"); ctxtime.Sleep(ctx, d.Duration(0, 4*time.Second)); {
		if d.Bool(0.5) {
			e.fail(p, &d)
		} else {
			e.echo(p, &d)
		}
	}
}

// fail requests an error.
func (e *echoService) fail(p *boxcarrpc.Pool, d *chance.Draw) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	code := boxcarrpc.Code(17 + d.Int(1<<(5+d.Int(20))))
	_, err := p.Call(ctx, "fail", binary.BigEndian.AppendUint32(nil, uint32(code)), nil)
	want := code
	if code > largestCode {
		want = boxcarrpc.CodeUnknown
	}
	if boxcarrpc.CodeOf(err) != want {
		e.wrongf("the handler's code %d arrives as %d: %v", code, boxcarrpc.CodeOf(err), err)
	}
}

// echo requests an echo, in a trace and with metadata of any size.
func (e *echoService) echo(p *boxcarrpc.Pool, d *chance.Draw) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled}))
	request := bytes.Repeat([]byte{byte(d.Int(256))}, d.Int(1<<d.Int(18)))
	metadata := boxcarrpc.Metadata(nil).Append("key", "")
	metadata = boxcarrpc.Metadata(nil).Append("key", strings.Repeat("v", max(0, boxcarrpc.MaxMetadataBytes-len(metadata)-8-d.Int(1<<(1+d.Int(14))))))
	response, err := p.CallWith(ctx, "echo", request, nil, &boxcarrpc.CallInfo{Metadata: metadata})
	if err != nil || !bytes.Equal(response, request) {
		e.wrongf("a request of %d bytes with %d bytes of metadata has a response of %d bytes: %v", len(request), len(metadata), len(response), err)
	}
}

// nameless calls with a certificate without a name; each call must be refused. Its pool is open only
// for a call, because it connects again and again.
func (e *echoService) nameless(ctx context.Context) {
	for d := e.w.chance.Next("nameless"); ctxtime.Sleep(ctx, d.Duration(0, 40*time.Second)); {
		if err := e.pingOnce(ctx, noName); err == nil {
			e.wrongf("a client whose certificate has no name is served")
		}
	}
}

// revokedClient calls with a certificate of an authority that is revoked later. When its pool has been
// refused, it opens another one for each call.
func (e *echoService) revokedClient(ctx context.Context) {
	connected, disconnect := context.WithCancel(ctx)
	defer disconnect()
	p := e.pool(connected, revokedName)
	ping := func() error { return e.ping(p) }
	for d := e.w.chance.Next("revoked"); ctxtime.Sleep(ctx, d.Duration(0, 10*time.Second)); {
		began := time.Now()
		switch err := ping(); {
		case err != nil && time.Now().Before(e.revoked):
			e.wrongf("a client whose authority will be revoked: %v", err)
		case err != nil:
			disconnect()
			ping = func() error { return e.pingOnce(ctx, revokedName) }
		case began.After(e.revoked.Add(session.Interval + revocationSlack)):
			e.wrongf("a client is served %v after its authority was revoked", began.Sub(e.revoked))
		}
	}
}

// revokedWatch receives a stream with a certificate of an authority that is revoked soon. Nothing is
// sent in either direction.
func (e *echoService) revokedWatch(ctx context.Context) {
	d := e.w.chance.Next("revoked watch")
	if !ctxtime.Sleep(ctx, time.Until(e.revoked)-d.Duration(0, session.Interval)) {
		return
	}
	s, err := e.pool(ctx, revokedName).Stream(ctx, "wait", nil)
	if err != nil {
		if time.Now().Before(e.revoked) {
			e.wrongf("a stream of a client whose authority will be revoked: %v", err)
		}
		return
	}
	_, err = s.Receive(nil)
	late := time.Since(e.revoked)
	if late > session.Interval+revocationSlack || late < 0 && ctx.Err() == nil {
		e.wrongf("the stream of a client ends %v after its authority was revoked: %v", late, err)
	}
}

// revocationSlack is the time for the timers of a server that verifies sessions each session.Interval.
const revocationSlack = 5 * time.Second

// pingOnce requests an echo of nothing with a pool that is closed then.
func (e *echoService) pingOnce(ctx context.Context, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return e.ping(e.pool(ctx, name))
}

// ping requests an echo of nothing.
func (e *echoService) ping(p *boxcarrpc.Pool) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	_, err := p.Call(ctx, "echo", nil, nil)
	return err
}
