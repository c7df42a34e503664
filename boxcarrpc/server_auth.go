package boxcarrpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/wire"
	"docstore/boxcarrpc/session"
)

// errNotAdmitted is a client that the server refuses.
var errNotAdmitted = errors.New("client refused")

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
	if s.tls != nil || s.options.Insecure || conn.IsLocal(l.Addr()) {
		return nil
	}
	return fmt.Errorf("boxcarrpc: serve %v: plain text to other hosts is not allowed: set ServerOptions.TLS, or Insecure to allow it", l.Addr())
}

// handshake exchanges HELLOs, before anything else is written.
func (c *serverConn) handshake() error {
	deadline := time.Now().Add(c.server.options.HandshakeTimeout)
	if err := c.conn.SetDeadline(deadline); err != nil {
		return err
	}
	if err := conn.ServerTLS(c.conn); err != nil {
		return err
	}
	c.in.BeforeRead = nil // keep the deadline of the handshake
	f, err := c.in.Next()
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	if f.Type != wire.TypeHello {
		return protocolError("%v before HELLO", f.Type)
	}
	hello, err := f.Hello()
	if err != nil {
		return err
	}
	if err := c.authenticate(hello); err != nil {
		_, _ = c.conn.Write(wire.AppendReason(nil, wire.TypeGoAway, err.Error())) // the client may also just see the connection end
		return err
	}
	c.otherZone = discovery.OtherZone(c.server.options.Zone, hello.Zone)
	c.maxResponse = min(hello.MaxResponse, MaxResponseBytes)
	_, err = c.conn.Write(wire.AppendHello(nil, wire.Hello{
		Version:       wire.Version,
		OldestVersion: wire.OldestVersion,
		MaxLanes:      uint32(c.server.options.maxLanesPerConn),
		MaxRequest:    uint32(c.server.options.MaxRequestBytes),
		MaxStreams:    uint32(c.server.options.MaxStreams),
		Name:          c.server.options.Name,
		Zone:          c.server.options.Zone,
	}))
	if err != nil {
		return err
	}
	if err := commonVersion(hello); err != nil {
		return err
	}
	c.in.BeforeRead = c.beforeRead
	c.checked, c.greeted = time.Now(), true
	if err := c.conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	c.greet()
	c.openSession()
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

// openSession makes the server verify the credentials of the client again: at least every
// session.Interval, when the authorities change, and when the certificate expires.
func (c *serverConn) openSession() {
	credential := session.Credential{TLS: c.peer.TLS}
	if c.server.options.Authenticate != nil {
		credential.Check = c.reauthenticate
	}
	c.session = c.server.sessions.Add(credential, c.stopNotAdmitted)
}

// reauthenticate authenticates the client again. Its identity must be unchanged.
func (c *serverConn) reauthenticate() error {
	identity, err := c.server.authenticate(newPeer(c.conn, wire.Hello{Name: c.peer.Name, Zone: c.peer.Zone}), c.token)
	if err == nil && identity != c.peer.Identity {
		err = fmt.Errorf("identity changed to %v", identity)
	}
	return err
}

// stopNotAdmitted stops the connection of a client whose credentials are no longer valid, as
// if the server stopped: requests just received are refused as not processed, so that a
// client that has a new token by now loses nothing. Its streams end with the same status.
func (c *serverConn) stopNotAdmitted(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.stopping {
		c.server.faults.Warn(c.peer.Address, "unwelcome", "client is told to go away", "peer", c.peer.Address.String(), "name", c.peer.Name, "identity", c.peer.Identity.String(), "reason", err)
		c.stopLocked(refusedNotAdmitted)
		c.endStreamsLocked(refusedNotAdmitted)
	}
}

// identify moves a connection, which has no slots or streams yet, to the client that it has
// authenticated as. It returns an error if the client has too many connections, or if the
// connection has been replaced.
func (s *Server) identify(c *serverConn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.shares.handshaking.Remove(c) {
		return errReplaced
	}
	if c.share.key == c.client {
		return nil
	}
	s.shares.leaveLocked(c.share)
	c.share = s.shares.joinLocked(c.client)
	if c.share.conns > s.shares.conns {
		return fmt.Errorf("%w: it has %d connections, the limit for one client", errNotAdmitted, s.shares.conns)
	}
	return nil
}

// errReplaced is the end of a connection whose client was not identified when the server had
// no room for others.
var errReplaced = errors.New("replaced by another connection before it was identified")
