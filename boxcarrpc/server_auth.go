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

	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/wire"
)

// MaxTokenBytes is the size of the largest token.
const MaxTokenBytes = wire.MaxTokenBytes

var (
	// errTLS is a failed TLS handshake.
	errTLS = errors.New("TLS handshake")
	// errNotAdmitted is a client that the server refuses.
	errNotAdmitted = errors.New("client refused")

	errNoTLS = errors.New("TLS function returned no configuration")
)

// ErrPlainText is returned when a pool has neither TLS nor Insecure and a server is on
// another host: by NewPool if the source has fixed addresses, otherwise at once by calls
// while the pool holds no slot.
var ErrPlainText error = plainTextError("plain text to another host is not allowed: set PoolOptions.TLS, or Insecure to allow it")

// errPlainToken matches ErrPlainText.
var errPlainToken error = plainTextError("a token cannot be sent to another host in plain text: set PoolOptions.TLS")

type plainTextError string

func (e plainTextError) Error() string { return string(e) }

func (plainTextError) Is(target error) bool { return target == ErrPlainText }

// tlsConfig returns the configuration of a server's connections, which calls TLS for each;
// nil for plain text.
func (o *ServerOptions) tlsConfig() *tls.Config {
	if o.TLS == nil {
		return nil
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS13, // required by linters; this configuration is not used itself
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return o.TLS() },
	}
}

// checkListener returns an error if the listener would serve plain text to other hosts
// although Insecure is not set.
func (s *Server) checkListener(l net.Listener) error {
	if s.tls != nil || s.options.Insecure || isLocal(l.Addr()) {
		return nil
	}
	return fmt.Errorf("boxcarrpc: serve %v: plain text to other hosts is not allowed: set ServerOptions.TLS, or Insecure to allow it", l.Addr())
}

// handshakeTLS completes the TLS handshake, if the connection uses TLS, within its
// deadline.
func (c *serverConn) handshakeTLS() error {
	if conn, ok := c.conn.(*tls.Conn); ok {
		err := conn.HandshakeContext(context.Background())
		var plain tls.RecordHeaderError
		if errors.As(err, &plain) && plain.Conn != nil {
			// The client may be a Boxcar client without TLS.
			_, _ = plain.Conn.Write(wire.AppendReason(nil, wire.TypeGoAway, "this server requires TLS"))
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errTLS, err)
		}
	}
	return nil
}

// authenticate identifies the client and decides whether to accept it.
func (c *serverConn) authenticate(hello wire.Hello) error {
	peer := newPeer(c.conn, hello)
	c.peer = peer
	identity, err := c.server.authenticate(peer, hello.Token)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotAdmitted, err)
	}
	peer.Identity, c.token = identity, hello.Token
	c.client = peer.Client()
	c.account.Identify(c.client)
	return c.server.identify(c)
}

// authenticate returns the identity of a client, or an error if the client is refused.
func (s *Server) authenticate(peer *Peer, token string) (Identity, error) {
	if s.options.Authenticate == nil {
		return IdentityOfTLS(peer.TLS)
	}
	identity, err := s.options.Authenticate(peer, token)
	if err == nil {
		err = identity.check()
	}
	return identity, err
}

// authorized calls allow before a handler, if it is not nil.
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

// authorizedStream calls allow before a handler of streams, if it is not nil.
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

// denied adds a code to an error of Authorize that has none.
func denied(err error) error {
	var e *Error
	if errors.As(err, &e) || IsNotProcessed(err) {
		return err
	}
	return &Error{Code: CodePermissionDenied, Message: err.Error(), Processed: true}
}

// secure sets up TLS on a new connection and returns the token to send. Nothing has been
// sent yet.
func (o *PoolOptions) secure(ctx context.Context, conn net.Conn, address string) (secured net.Conn, token string, err error) {
	if o.TLS != nil {
		if conn, err = clientTLS(ctx, conn, address, o.TLS); err != nil {
			return nil, "", fmt.Errorf("%w: %w", errTLS, err)
		}
	}
	if o.Token != nil {
		if token, err = o.Token(); err != nil {
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
	case !o.Insecure:
		return nil, "", ErrPlainText
	}
	return conn, token, nil
}

// checkTransport returns an error if the options do not allow the pool to use its servers,
// as far as that is known before the first connection: if the source has fixed addresses
// and the Dialer is the default.
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
		case err != nil || host.Addr().Unmap().IsLoopback(): // host names are checked when connected
		case o.Token != nil:
			return fmt.Errorf("boxcarrpc: PoolOptions.Token: %s: %w", address, errPlainToken)
		default:
			return fmt.Errorf("boxcarrpc: PoolOptions.TLS: %s: %w", address, ErrPlainText)
		}
	}
	return nil
}

// clientTLS completes the TLS handshake of a connection. The server must prove to be the
// host of the address, unless the configuration has a ServerName.
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
		return nil, fmt.Errorf("server closed the connection; does it serve TLS? %w", err)
	}
	return nil, err
}
