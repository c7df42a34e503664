package boxcarrpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/session"
	"docstore/internal/testcert"
	"docstore/internal/virtualtime"
)

// A testTLS is a certificate authority and makes configurations with its certificates.
type testTLS struct {
	ca    *testcert.CA
	roots *x509.CertPool
}

func newTestTLS(t testing.TB) *testTLS {
	p := &testTLS{ca: testcert.NewCA(t, "test CA"), roots: x509.NewCertPool()}
	p.roots.AddCert(p.ca.Certificate)
	return p
}

func (p *testTLS) pair(t testing.TB, name string, end time.Time) []tls.Certificate {
	pair, err := tls.X509KeyPair(p.ca.Issue(t, name, end))
	require.NoError(t, err)
	return []tls.Certificate{pair}
}

// server returns the configuration of a server that requests certificates as auth says.
func (p *testTLS) server(t testing.TB, auth tls.ClientAuthType) func() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: auth, ClientCAs: p.roots}
	config.Certificates = p.pair(t, "localhost", time.Now().Add(time.Hour))
	return func() (*tls.Config, error) { return config, nil }
}

// client returns the configuration of a client with a certificate, or without one if name
// is empty.
func (p *testTLS) client(t testing.TB, name string) func() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: p.roots}
	if name != "" {
		config.Certificates = p.pair(t, name, time.Now().Add(time.Hour))
	}
	return func() (*tls.Config, error) { return config, nil }
}

// whoami returns the client's identity.
func whoami(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
	return append(dst, PeerOf(ctx).Identity.Name...), nil
}

// notReady returns the error of a pool that gets no slot.
func notReady(t *testing.T, opts *PoolOptions, address string) string {
	p := newPoolOf(t, opts, discovery.Static(address))
	var said string
	until(t, "the error names the server", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		err := p.WaitReady(ctx)
		require.ErrorIs(t, err, ErrNoServer)
		require.True(t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrPlainText), err)
		said = err.Error()
		return strings.Contains(said, address)
	})
	return said
}

func TestMutualTLS(t *testing.T) {
	certs := newTestTLS(t)
	s := serve(t, whoami, &ServerOptions{
		TLS: certs.server(t, tls.RequireAndVerifyClientCert),
		StreamHandler: func(ctx context.Context, _ string, stream *ServerStream) error {
			return stream.Send([]byte(PeerOf(ctx).Identity.Name))
		},
	})
	p := newPool(t, &PoolOptions{Size: 4, TLS: certs.client(t, "frontend")}, s.address)
	var info CallInfo
	out, err := p.CallWith(t.Context(), "m", nil, nil, &info)
	require.NoError(t, err)
	require.Equal(t, "frontend", string(out))
	require.Equal(t, Identity{CertificateIdentity, "localhost"}, info.Server.Identity)
	require.Equal(t, "frontend", s.Board().Slots[0].Identity)
	require.Equal(t, uint16(tls.VersionTLS13), info.Server.TLS.Version)
	stream, err := p.Stream(t.Context(), "m", nil)
	require.NoError(t, err)
	out, err = stream.Receive(nil)
	require.NoError(t, err)
	require.Equal(t, "frontend", string(out))
	_, err = stream.Receive(nil)
	require.ErrorIs(t, err, io.EOF)
	large := make([]byte, 1<<20)
	out, err = p.Call(t.Context(), MethodEcho, large, nil)
	require.NoError(t, err)
	require.Equal(t, large, out)
	require.Zero(t, s.Stats().Faults)
}

func TestTLSMismatchIsReported(t *testing.T) {
	certs, others := newTestTLS(t), newTestTLS(t)
	s := serve(t, whoami, &ServerOptions{TLS: certs.server(t, tls.RequireAndVerifyClientCert)})
	plain := serve(t, whoami, nil)
	_, port, err := net.SplitHostPort(s.address)
	require.NoError(t, err)
	wrongName := func() (*tls.Config, error) {
		config, err := certs.client(t, "frontend")()
		config.ServerName = "be-7.example"
		return config, err
	}
	for name, c := range map[string]struct {
		tls     func() (*tls.Config, error)
		address string
		want    string
	}{
		"another authority":   {others.client(t, "frontend"), s.address, "unknown authority"},
		"unknown client":      {func() (*tls.Config, error) { c, err := others.client(t, "x")(); c.RootCAs = certs.roots; return c, err }, s.address, "unknown certificate authority"},
		"no certificate":      {certs.client(t, ""), s.address, "certificate required"},
		"another server":      {wrongName, s.address, "not be-7.example"},
		"TLS to plain text":   {certs.client(t, "frontend"), plain.address, "does it serve TLS?"},
		"plain text to TLS":   {nil, s.address, "server refused the connection: this server requires TLS"},
		"an address of names": {certs.client(t, ""), "localhost:" + port, "certificate required"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, notReady(t, &PoolOptions{TLS: c.tls}, c.address), c.want)
		})
	}
	require.Zero(t, s.Stats().Requests)
	require.NotZero(t, s.Stats().Faults)
}

// A remote is a connection or a listener that appears to belong to another host.
type remote struct {
	net.Conn
	net.Listener
	written atomic.Int64
}

func (r *remote) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 7070} }
func (r *remote) Addr() net.Addr       { return &net.TCPAddr{IP: net.IPv6unspecified, Port: 7070} }

func (r *remote) Write(b []byte) (int, error) {
	r.written.Add(int64(len(b)))
	return r.Conn.Write(b)
}

func (r *remote) Close() error {
	if r.Conn != nil {
		return r.Conn.Close()
	}
	return r.Listener.Close()
}

func TestPlainTextIsForThisHost(t *testing.T) {
	listen := func() *remote {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		return &remote{Listener: l}
	}
	l := listen()
	require.NoError(t, l.Close()) // accepting would be another error
	require.ErrorContains(t, NewServer(echo, nil).Serve(l), "serve [::]:7070: plain text to other hosts is not allowed")
	l = listen()
	s := serveOn(t, l, echo, &ServerOptions{Insecure: true})
	address := l.Listener.Addr().String()
	serveOn(t, listen(), echo, &ServerOptions{TLS: newTestTLS(t).server(t, tls.NoClientCert)})

	var last atomic.Pointer[remote]
	far := func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		last.Store(&remote{Conn: conn})
		return last.Load(), nil
	}
	token := func() (string, error) { return "0123456789abcdef", nil }
	require.Contains(t, notReady(t, &PoolOptions{Dialer: far}, address), "plain text to another host is not allowed")
	require.Zero(t, last.Load().written.Load())
	require.Contains(t, notReady(t, &PoolOptions{Dialer: far, Token: token, Insecure: true}, address), "a token cannot be sent")
	require.Zero(t, last.Load().written.Load())
	p := newPool(t, &PoolOptions{Dialer: far, Insecure: true}, address)
	_, err := p.Call(t.Context(), "m", nil, nil)
	require.NoError(t, err)
	_, err = newPool(t, &PoolOptions{Token: token}, address).Call(t.Context(), "m", nil, nil)
	require.NoError(t, err, "a token on loopback")
	require.Equal(t, uint64(2), s.Stats().Requests)
}

// Options that cannot work are reported by NewPool or by the first call, not when the
// context of each call ends.
func TestUnusableOptionsAreReportedAtOnce(t *testing.T) {
	failing := func() (*tls.Config, error) { return nil, errors.New("disk on fire") }
	nothing := func() (*tls.Config, error) { return nil, nil }
	far, near := discovery.Static("127.0.0.1:1", "10.0.0.1:7070"), discovery.Static("127.0.0.1:1", "[::1]:1", "localhost:1")
	for name, test := range map[string]struct {
		source discovery.Source
		opts   *PoolOptions
		want   string // empty for none
	}{
		"far":               {far, nil, "PoolOptions.TLS: 10.0.0.1:7070: plain text to another host"},
		"far, insecure":     {far, &PoolOptions{Insecure: true}, ""},
		"far, with a token": {far, &PoolOptions{Insecure: true, Token: fixed("x")}, "PoolOptions.Token: 10.0.0.1:7070: a token cannot be sent"},
		"far, by a dialer":  {far, &PoolOptions{Dialer: newPipes().dial}, ""},
		"a pattern":         {discovery.Pattern("10.0.0.%d:7070", 3), nil, "PoolOptions.TLS: 10.0.0.0:7070"},
		"a pattern of none": {discovery.Pattern("10.0.0.%d:7070", 0), nil, ""},
		"near":              {near, nil, ""},
		"TLS that fails":    {near, &PoolOptions{TLS: failing}, "PoolOptions.TLS: disk on fire"},
		"TLS without any":   {near, &PoolOptions{TLS: nothing}, "PoolOptions.TLS: TLS function returned no configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := NewPool(test.source, test.opts)
			if test.want == "" {
				require.NoError(t, err)
				require.NoError(t, p.Close())
				return
			}
			require.ErrorContains(t, err, test.want)
		})
	}

	s := serve(t, echo, nil)
	p := newPoolOf(t, &PoolOptions{Dialer: func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		return &remote{Conn: conn}, err
	}}, discovery.Static(s.address))
	_, err := p.Call(t.Context(), "m", nil, nil) // without a deadline
	require.ErrorIs(t, err, ErrPlainText)
	require.ErrorIs(t, err, ErrNoServer)
	require.ErrorIs(t, p.WaitReady(t.Context()), ErrPlainText)
}

// keys authenticates by a table of tokens that may change. A token of no name is that of an
// anonymous client.
type keys struct {
	mu    sync.Mutex
	names map[string]string
}

func (k *keys) set(names map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.names = names
}

func (k *keys) authenticate(peer *Peer, token string) (Identity, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch name, ok := k.names[token]; {
	case ok && name == "":
		return Identity{}, nil
	case ok:
		return Identity{TokenIdentity, name}, nil
	case token == "" && peer.Identity.Authenticated():
		return peer.Identity, nil
	}
	return Identity{}, errors.New("who are you?")
}

func fixed(token string) func() (string, error) { return func() (string, error) { return token, nil } }

func TestTokensIdentifyClients(t *testing.T) {
	k := &keys{names: map[string]string{"open sesame": "ali", "abracadabra": "merlin"}}
	certs := newTestTLS(t)
	s := serve(t, whoami, &ServerOptions{Authenticate: k.authenticate, TLS: certs.server(t, tls.VerifyClientCertIfGiven)})
	for want, opts := range map[string]*PoolOptions{
		"ali":      {Token: fixed("open sesame"), TLS: certs.client(t, "")},
		"merlin":   {Token: fixed("abracadabra"), TLS: certs.client(t, "frontend")},
		"frontend": {TLS: certs.client(t, "frontend")},
	} {
		out, err := newPool(t, opts, s.address).Call(t.Context(), "m", nil, nil)
		require.NoError(t, err)
		require.Equal(t, want, string(out))
	}
	for want, opts := range map[string]*PoolOptions{
		"server refused the connection: client refused: who are you?": {Token: fixed("sesame, open"), TLS: certs.client(t, "")},
		"client refused": {TLS: certs.client(t, "")},
		"token: no file": {Token: func() (string, error) { return "", errors.New("no file") }, TLS: certs.client(t, "")},
		"token of 8193":  {Token: fixed(strings.Repeat("x", MaxTokenBytes+1)), TLS: certs.client(t, "")},
	} {
		require.Contains(t, notReady(t, opts, s.address), want)
	}
}

// Tokens appear in no log, error or page.
func TestTokensAreNotDisclosed(t *testing.T) {
	const good, bad = "open-sesame-0123456789", "sesame-open-0123456789"
	var d diary
	log := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) { d.add(string(b)) }), &slog.HandlerOptions{Level: slog.LevelDebug}))
	k := &keys{names: map[string]string{good: "ali"}}
	s := serve(t, whoami, &ServerOptions{Authenticate: k.authenticate, Logger: log})
	p := newPool(t, &PoolOptions{Token: fixed(good), Logger: log}, s.address)
	stream, err := p.Stream(t.Context(), MethodBoard, nil)
	require.NoError(t, err)
	board, err := stream.Receive(nil)
	require.NoError(t, err)
	d.add(string(board))
	d.add(notReady(t, &PoolOptions{Token: fixed(bad), Logger: log}, s.address))
	until(t, "the refusal is logged", func() bool { return strings.Contains(strings.Join(d.read(), ""), "who are you") })
	for _, line := range d.read() {
		require.NotContains(t, line, good)
		require.NotContains(t, line, bad)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

func TestAuthorize(t *testing.T) {
	served := make(chan string, 10)
	s := serve(t, func(_ context.Context, method string, _, dst []byte) ([]byte, error) {
		served <- method
		return dst, nil
	}, &ServerOptions{
		Authenticate: (&keys{names: map[string]string{"a": "ali"}}).authenticate,
		Authorize: func(ctx context.Context, method string) error {
			switch {
			case method == "late":
				return &Error{Code: CodeUnavailable, Message: "the judge sleeps"}
			case PeerOf(ctx).Identity.Name == "ali" && method == "open":
				return nil
			}
			return errors.New("no " + method + " for " + PeerOf(ctx).Identity.Name)
		},
		StreamHandler: func(_ context.Context, method string, _ *ServerStream) error {
			served <- "stream " + method
			return nil
		},
	})
	p := newPool(t, &PoolOptions{Token: fixed("a"), Size: 1, MaxRetries: -1}, s.address)
	_, err := p.Call(t.Context(), "open", nil, nil)
	require.NoError(t, err)
	require.Equal(t, "open", <-served)
	for _, method := range []string{"close", MethodEcho, MethodBoard} {
		_, err = p.Call(t.Context(), method, nil, nil)
		require.Equal(t, CodePermissionDenied, CodeOf(err))
		require.ErrorContains(t, err, "no "+method+" for ali")
	}
	_, err = p.Call(t.Context(), "late", nil, nil)
	require.Equal(t, CodeUnavailable, CodeOf(err))
	for _, method := range []string{"close", MethodDrain, MethodBoard} {
		_, err = open(t, p, method).Receive(nil)
		require.Equal(t, CodePermissionDenied, CodeOf(err))
	}
	require.False(t, s.Stats().Draining)
	_, err = open(t, p, "open").Receive(nil)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, "stream open", <-served)
	require.Empty(t, served)
	require.Equal(t, 1, p.Stats().Slots, "it costs no slot")
}

// The rate of an authenticated client goes by its identity, not by its address.
func TestRatesGoByIdentity(t *testing.T) {
	s := serve(t, echo, &ServerOptions{
		Authenticate: (&keys{names: map[string]string{"a": "ali", "b": "baba"}}).authenticate,
		Admission:    budget.Admission{ClientRate: 1e-3, ClientBurst: 1},
	})
	for _, token := range []string{"a", "b"} {
		p := newPool(t, &PoolOptions{Token: fixed(token), Size: 1, MaxRetries: -1}, s.address)
		_, err := p.Call(t.Context(), "m", nil, nil)
		require.NoError(t, err)
		_, err = p.Call(t.Context(), "m", nil, nil)
		require.Equal(t, CodeResourceExhausted, CodeOf(err))
	}
}

// A revoked token ends its connections, but fails no call of a client that has a new one by
// then.
func TestRevokedTokenEndsConnections(t *testing.T) {
	k := &keys{names: map[string]string{"old": "ali"}}
	opts := &ServerOptions{Authenticate: k.authenticate, StreamHandler: func(ctx context.Context, _ string, _ *ServerStream) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	inBubble(t, echo, opts, func(t *testing.T, s *testServer, l *pipes) {
		var token atomic.Value
		token.Store("old")
		p := newPool(t, &PoolOptions{Size: 2, Dialer: l.dial, Token: func() (string, error) { return token.Load().(string), nil }}, "pipe")
		defer p.Close()
		stream := open(t, p, "watch")
		ended := make(chan error, 1)
		go func() {
			_, err := stream.Receive(nil)
			ended <- err
		}()
		call := func() {
			time.Sleep(time.Millisecond)
			_, err := p.Call(t.Context(), "not idempotent", nil, nil)
			require.NoError(t, err)
		}
		for range 100 {
			call()
		}
		token.Store("new")
		k.set(map[string]string{"old": "ali", "new": "ali"})
		for range 15_000 {
			call()
		}
		require.Empty(t, ended, "both tokens are valid")
		k.set(map[string]string{"new": "ali"})
		before := s.Stats().Accepted
		start := time.Now()
		for s.Stats().Accepted == before {
			call()
			require.LessOrEqual(t, time.Since(start), session.Interval+time.Second)
		}
		require.Error(t, <-ended, "its streams end")
		for range 15_000 {
			call()
		}
		require.Zero(t, s.Stats().Faults)

		k.set(nil)
		start = time.Now()
		for p.Stats().Slots > 0 { // a client without a token loses its slots
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, _ = p.Call(ctx, "m", nil, nil)
			<-ctx.Done()
			cancel()
			require.LessOrEqual(t, time.Since(start), session.Interval+2*time.Second)
		}
	})
}

// An Authenticate that took 1.5 s, as with a slow token service, blocked the reading: the
// connection failed after a second of silence, with its calls.
func TestSlowAuthenticateDelaysNoCall(t *testing.T) {
	var checks atomic.Int64
	opts := &ServerOptions{Authenticate: func(*Peer, string) (Identity, error) {
		if checks.Add(1) > 1 { // not in the handshake
			time.Sleep(1500 * time.Millisecond)
		}
		return Identity{TokenIdentity, "ali"}, nil
	}}
	inBubble(t, echo, opts, func(t *testing.T, s *testServer, l *pipes) {
		p := newPool(t, &PoolOptions{Size: 2, Dialer: l.dial, SilenceTimeout: DefaultSilenceTimeout}, "pipe")
		defer p.Close()
		for start := time.Now(); time.Since(start) < 4*session.Interval; time.Sleep(10 * time.Millisecond) {
			began := time.Now()
			_, err := p.Call(t.Context(), "not idempotent", nil, nil)
			require.NoError(t, err)
			require.Less(t, time.Since(began), 100*time.Millisecond)
		}
		require.GreaterOrEqual(t, checks.Load(), int64(4))
		require.Equal(t, uint64(1), s.Stats().Accepted)
		require.Zero(t, p.Stats().Broken)
	})
}

// A connection does not outlive the client certificate.
func TestACertificateExpires(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		certs, l := newTestTLS(t), newPipes()
		s := serveOn(t, l, whoami, &ServerOptions{TLS: certs.server(t, tls.RequireAndVerifyClientCert)})
		config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: certs.roots, ServerName: "localhost"}
		config.Certificates = certs.pair(t, "frontend", time.Now().Add(time.Minute))
		p := newPool(t, &PoolOptions{Size: 1, Dialer: l.dial, TLS: func() (*tls.Config, error) { return config, nil }}, "pipe")
		start := time.Now()
		for p.Stats().Slots > 0 {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			out, err := p.Call(ctx, "m", nil, nil)
			if time.Since(start) < time.Minute {
				require.NoError(t, err)
				require.Equal(t, "frontend", string(out))
			}
			<-ctx.Done()
			cancel()
			require.LessOrEqual(t, time.Since(start), time.Minute+2*time.Second)
		}
		require.Greater(t, time.Since(start), time.Minute)
		require.NoError(t, p.Close())
		s.stop()
	})
}
