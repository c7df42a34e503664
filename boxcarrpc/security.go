package boxcarrpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/wire"
)

// MaxTokenBytes bounds the token that a client shows.
const MaxTokenBytes = wire.MaxTokenBytes

// A client is authenticated again this long after the last time, when it sends
// something: a token that was taken back or a certificate that has expired ends its
// connections.
const reauthenticateEvery = 10 * time.Second

var (
	// errTLS is a handshake that failed.
	errTLS = errors.New("TLS handshake")
	// errNotAdmitted is a client whom the server does not let in.
	errNotAdmitted = errors.New("not let in")

	errNoTLS = errors.New("there is no configuration")
)

// ErrPlainText is why a pool cannot use a server on another host: it has neither TLS nor
// Insecure. NewPool returns it where the source has fixed addresses; otherwise calls that
// have no slot fail with it at once.
var ErrPlainText error = plainTextError("another host is not spoken to in plain text: set PoolOptions.TLS, or Insecure if that is meant")

// errPlainToken matches ErrPlainText.
var errPlainToken error = plainTextError("a token is not sent to another host in plain text: set PoolOptions.TLS")

type plainTextError string

func (e plainTextError) Error() string { return string(e) }

func (plainTextError) Is(target error) bool { return target == ErrPlainText }

// tlsConfig is the configuration of a server's connections, which asks for that of
// each; nil for plain text.
func (o *ServerOptions) tlsConfig() *tls.Config {
	if o.TLS == nil {
		return nil
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS13, // of this one, which is never used
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return o.TLS() },
	}
}

// checkListener refuses to serve plain text to other hosts unless that was asked for.
func (s *Server) checkListener(l net.Listener) error {
	if s.tls != nil || s.options.Insecure || isLocal(l.Addr()) {
		return nil
	}
	return fmt.Errorf("boxcarrpc: %v would serve other hosts in plain text: set ServerOptions.TLS, or Insecure if that is meant", l.Addr())
}

// handshakeTLS makes the connection's TLS, if it has any, within its deadline.
func (c *serverConn) handshakeTLS() error {
	if conn, ok := c.conn.(*tls.Conn); ok {
		err := conn.HandshakeContext(context.Background())
		var plain tls.RecordHeaderError
		if errors.As(err, &plain) && plain.Conn != nil {
			// The client may be one of ours. The end tells it, too.
			_, _ = plain.Conn.Write(wire.AppendReason(nil, wire.TypeGoAway, "this server speaks TLS only"))
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errTLS, err)
		}
	}
	return nil
}

// authenticate finds out who the client is, and whether it may come in.
func (c *serverConn) authenticate(name, token string) error {
	peer := newPeer(c.conn, name)
	c.peer = peer
	if check := c.server.options.Authenticate; check != nil {
		identity, err := check(peer, token)
		if err != nil {
			return fmt.Errorf("%w: %w", errNotAdmitted, err)
		}
		peer.Identity, c.token = identity, token
	}
	c.client, c.authenticated = clientOf(peer), time.Now()
	c.account.Identify(peer)
	if !c.server.identify(c) {
		return fmt.Errorf("%w: the client has %d connections, the most that one client may have", errNotAdmitted, c.server.shares.conns)
	}
	return nil
}

// enforceAuth stops the connection of a client that is not welcome any more, as if the
// server stopped: the requests that it has just sent are refused as not processed, so
// that a client that has another token by now loses nothing. Its streams end.
//
// The leader authenticates as it runs a handler: if that takes long, as with a
// server of tokens on another host, a follower reads on meanwhile. enforceAuth reports
// whether the turn is still the caller's.
func (c *serverConn) enforceAuth(now time.Time) (leads bool) {
	if now.Sub(c.authenticated) < reauthenticateEvery || !c.checking.CompareAndSwap(false, true) {
		return true
	}
	defer c.checking.Store(false)
	c.authenticated = now
	number := c.turn.begin(&c.server.monitor, c)
	if err := c.reauthenticate(now); err != nil {
		c.stopNotAdmitted(err)
	}
	leads = c.turn.running.CompareAndSwap(number, 0)
	if leads {
		c.turn.clock = time.Now()
	}
	return leads
}

// stopNotAdmitted stops the connection of a client for a reason that it is not let in.
func (c *serverConn) stopNotAdmitted(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.stopping {
		c.server.warn(c.peer.Address, "unwelcome", "client is told to go away", "peer", c.peer.Address.String(), "name", c.peer.Name, "identity", c.peer.Identity, "reason", err)
		c.stopLocked(refusedNotAdmitted)
		c.endStreamsLocked()
	}
}

// reauthenticate authenticates the client again. It must be who it was.
func (c *serverConn) reauthenticate(now time.Time) error {
	if state := c.peer.TLS; state != nil && len(state.VerifiedChains) > 0 {
		if end := state.VerifiedChains[0][0].NotAfter; now.After(end) {
			return fmt.Errorf("its certificate was valid until %v", end)
		}
	}
	check := c.server.options.Authenticate
	if check == nil {
		return nil
	}
	identity, err := check(newPeer(c.conn, c.peer.Name), c.token)
	if err == nil && identity != c.peer.Identity {
		err = fmt.Errorf("it is %q now", identity)
	}
	return err
}

// authorized puts the hook of authorisation around a handler.
func authorized(allow func(context.Context, string) error, next Handler) Handler {
	if allow == nil {
		return next
	}
	return func(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
		if err := allow(ctx, method); err != nil {
			return dst, denied(err)
		}
		return next(ctx, method, request, dst)
	}
}

// authorizedStream puts the hook of authorisation around a handler of streams.
func authorizedStream(allow func(context.Context, string) error, next StreamHandler) StreamHandler {
	if allow == nil {
		return next
	}
	return func(ctx context.Context, method string, stream *ServerStream) error {
		if err := allow(ctx, method); err != nil {
			return denied(err)
		}
		return next(ctx, method, stream)
	}
}

// denied gives an error of the hook a code, if it has none.
func denied(err error) error {
	var e *Error
	if errors.As(err, &e) || IsNotProcessed(err) {
		return err
	}
	return &Error{Code: CodePermissionDenied, Message: err.Error(), Processed: true}
}

// HasTLS reports whether everything that the pool sends is encrypted by its own TLS.
func (p *Pool) HasTLS() bool { return p.options.TLS != nil }

// secure makes a new connection of the pool fit for what is to be said on it, and
// returns the token to show. Nothing has been sent yet.
func (p *Pool) secure(ctx context.Context, conn net.Conn, address string) (secured net.Conn, token string, err error) {
	if p.options.TLS != nil {
		if conn, err = clientTLS(ctx, conn, address, p.options.TLS); err != nil {
			return nil, "", fmt.Errorf("%w: %w", errTLS, err)
		}
	}
	if p.options.Token != nil {
		if token, err = p.options.Token(); err != nil {
			return nil, "", fmt.Errorf("token: %w", err)
		}
		if len(token) > MaxTokenBytes {
			return nil, "", fmt.Errorf("token of %d bytes, at most %d are allowed", len(token), MaxTokenBytes)
		}
	}
	_, encrypted := conn.(*tls.Conn)
	switch {
	case encrypted || isLocal(conn.RemoteAddr()):
		return conn, token, nil
	case token != "":
		return nil, "", errPlainToken
	case !p.options.Insecure:
		return nil, "", ErrPlainText
	}
	return conn, token, nil
}

// checkTransport rejects options that do not let the pool speak to its servers, as far
// as that is known before the first connection: where the source has fixed addresses,
// and no Dialer of the program connects elsewhere.
func (o *PoolOptions) checkTransport(d discovery.Source, ownDialer bool) error {
	if o.TLS != nil {
		config, err := o.TLS()
		if err == nil && config == nil {
			err = errNoTLS
		}
		if err != nil {
			return fmt.Errorf("boxcarrpc: PoolOptions.TLS: %w", err)
		}
		return nil
	}
	fixed, ok := d.(discovery.Fixed)
	if !ok || ownDialer || o.Insecure && o.Token == nil {
		return nil
	}
	for _, address := range fixed.Addresses() {
		host, err := netip.ParseAddrPort(address)
		switch {
		case err != nil || host.Addr().Unmap().IsLoopback(): // of a name nothing is known yet
		case o.Token != nil:
			return fmt.Errorf("boxcarrpc: PoolOptions.Token: %s: %w", address, errPlainToken)
		default:
			return fmt.Errorf("boxcarrpc: PoolOptions.TLS: %s: %w", address, ErrPlainText)
		}
	}
	return nil
}

// clientTLS makes the TLS of a connection. The server must prove to be the host of
// the address, unless the configuration says otherwise.
func clientTLS(ctx context.Context, nc net.Conn, address string, source func() (*tls.Config, error)) (*tls.Conn, error) {
	config, err := source()
	if err != nil {
		return nil, err
	}
	if config == nil {
		return nil, errNoTLS
	}
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			host = address
		}
		config = config.Clone()
		config.ServerName = host
	}
	c := tls.Client(conn.NewTLSBatchConn(nc), config)
	err = c.HandshakeContext(ctx)
	var plain tls.RecordHeaderError
	switch {
	case err == nil:
		return c, nil
	case errors.As(err, &plain):
		return nil, noHello(plain.RecordHeader[:], err)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return nil, fmt.Errorf("the server ended the connection; does it serve TLS? %w", err)
	}
	return nil, err
}
