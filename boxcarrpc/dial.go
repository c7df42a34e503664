package boxcarrpc

import (
	"bytes"
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
	t.out.Init(nc, conn.NoAccount{}, 0, t.fail)
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
	f, err := firstFrame(&t.turn.in)
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

// quotedAnswerBytes is the part of an answer in another protocol that an error quotes.
const quotedAnswerBytes = 60

// notBoxcarError returns an ErrNotBoxcar if the first bytes of a server belong to another
// protocol.
func notBoxcarError(answer []byte) error {
	_, _, malformed := wire.PeekFrame(answer)
	switch {
	case bytes.HasPrefix(answer, []byte("HTTP/")):
		return notBoxcar("an HTTP server answered", answer)
	case bytes.HasPrefix(answer, []byte{0x15, 0x03}): // an alert record of any version
		return notBoxcar("a TLS server answered with an alert; is PoolOptions.TLS missing?", nil)
	case len(answer) >= 9 && answer[0] == 0 && bytes.Equal(answer[3:9], []byte{4, 0, 0, 0, 0, 0}):
		return notBoxcar("an HTTP/2 server, as of gRPC, answered with its settings", nil)
	case malformed != nil:
		return notBoxcar("the server answered", answer)
	}
	return nil
}

// notBoxcar returns an ErrNotBoxcar that quotes the first line of the answer, if there is
// one.
func notBoxcar(what string, answer []byte) error {
	if line, _, _ := bytes.Cut(answer, []byte("\r\n")); len(line) > 0 {
		what = fmt.Sprintf("%s %q", what, line[:min(len(line), quotedAnswerBytes)])
	}
	return fmt.Errorf("%w: %s", ErrNotBoxcar, what)
}

// noHello explains why the first frame of a server could not be read: err is the error of
// the reader, answer the bytes received.
func noHello(answer []byte, err error) error {
	if other := notBoxcarError(answer); other != nil {
		return other
	}
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("server closed the connection before its HELLO; does it have too many connections, or serve TLS or another protocol? %w", err)
	}
	return err
}

// firstFrame reads the first frame of a server, which may speak another protocol.
func firstFrame(in *conn.Reader) (wire.Frame, error) {
	for {
		f, ok, err := in.Buffered()
		if ok {
			return f, nil
		}
		if err == nil {
			err = in.Read()
		}
		if err != nil {
			return wire.Frame{}, noHello(in.Unread(), err)
		}
		if err := notBoxcarError(in.Unread()); err != nil {
			return wire.Frame{}, err
		}
	}
}
