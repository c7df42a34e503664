package boxcarrpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/wire"
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

// dial connects to a server and exchanges HELLOs.
func (m *members) dial(ctx context.Context, peer *poolPeer) (*transport, error) {
	ctx, cancel := context.WithTimeout(ctx, m.options.DialTimeout)
	defer cancel()
	nc, err := m.options.Dialer(ctx, peer.address)
	if err != nil {
		return nil, err
	}
	conn.Tune(nc)
	// The handshakes end with the context, whatever the server does.
	stop := context.AfterFunc(ctx, func() { conn.Close(nc) })
	t, err := m.greet(ctx, peer, nc)
	if !stop() && !errors.Is(err, ErrNotBoxcar) {
		err = fmt.Errorf("server accepted the connection but did not answer within %v: %w", m.options.DialTimeout, ctx.Err())
	}
	if err != nil {
		conn.Close(nc)
		return nil, fmt.Errorf("handshake: %w", err)
	}
	return t, nil
}

func (m *members) greet(ctx context.Context, peer *poolPeer, nc net.Conn) (*transport, error) {
	nc, token, err := m.options.secure(ctx, nc, peer.address)
	if err != nil {
		return nil, err
	}
	t := &transport{members: m, peer: peer, conn: nc}
	t.turn.init(nc)
	t.out.Init(nc, nil, 0, t.fail)
	return t, t.handshake(token)
}

func (t *transport) handshake(token string) error {
	_, err := t.conn.Write(wire.AppendHello(nil, wire.Hello{
		Version:       wire.Version,
		OldestVersion: wire.OldestVersion,
		MaxResponse:   MaxResponseBytes,
		Name:          t.members.options.Name,
		Token:         token,
		Zone:          t.members.options.Zone,
	}))
	if err != nil {
		return err
	}
	f, err := conn.FirstFrame(&t.turn.in)
	if err != nil {
		return err
	}
	if f.Type == wire.TypeGoAway {
		reason, err := f.Reason()
		return errors.Join(err, fmt.Errorf("server refused the connection: %s", reason))
	}
	if f.Type != wire.TypeHello {
		return protocolError("%v before HELLO", f.Type)
	}
	if t.hello, err = f.Hello(); err != nil {
		return err
	}
	t.server = newPeer(t.conn, t.hello)
	t.server.index = t.peer.index
	return commonVersion(t.hello)
}

// checkTransport returns an error if the options do not allow the pool to use its servers,
// as far as that is known before the first connection: if the source has fixed addresses
// and the Dialer is the default.
func (o *PoolOptions) checkTransport(d discovery.Source, ownDialer bool) error {
	if o.TLS != nil {
		if _, err := conn.Config(o.TLS); err != nil {
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

// secure sets up TLS on a new connection and returns the token to send. Nothing has been
// sent yet.
func (o *PoolOptions) secure(ctx context.Context, nc net.Conn, address string) (secured net.Conn, token string, err error) {
	if o.TLS != nil {
		if nc, err = conn.ClientTLS(ctx, nc, address, o.TLS); err != nil {
			return nil, "", err
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
	_, encrypted := nc.(*tls.Conn)
	switch {
	case encrypted || conn.IsLocal(nc.RemoteAddr()):
		return nc, token, nil
	case token != "":
		return nil, "", errPlainToken
	case !o.Insecure:
		return nil, "", ErrPlainText
	}
	return nc, token, nil
}
