package conn

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"docstore/boxcarrpc/internal/wire"
)

// Errors of the handshakes.
var (
	// ErrTLS is a failed TLS handshake.
	ErrTLS = errors.New("TLS handshake")
	// ErrNotBoxcar is a server that speaks another protocol.
	ErrNotBoxcar = errors.New("the server does not speak Boxcar")

	errNoTLS = errors.New("TLS function returned no configuration")
)

// Config returns the TLS configuration of a source, which must not be nil.
func Config(source func() (*tls.Config, error)) (*tls.Config, error) {
	config, err := source()
	if err == nil && config == nil {
		err = errNoTLS
	}
	return config, err
}

// ClientTLS sets up TLS on a connection to a server, which must prove to be the host of the
// address, unless the configuration has a ServerName.
func ClientTLS(ctx context.Context, nc net.Conn, address string, source func() (*tls.Config, error)) (*tls.Conn, error) {
	config, err := Config(source)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTLS, err)
	}
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			host = address
		}
		config = config.Clone()
		config.ServerName = host
	}
	c := tls.Client(NewTLSBatchConn(nc), config)
	err = c.HandshakeContext(ctx)
	var plain tls.RecordHeaderError
	switch {
	case err == nil:
		return c, nil
	case errors.As(err, &plain):
		err = noHello(plain.RecordHeader[:], err)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		err = fmt.Errorf("server closed the connection; does it serve TLS? %w", err)
	}
	return nil, fmt.Errorf("%w: %w", ErrTLS, err)
}

// ServerTLS completes the TLS handshake of a client, if nc uses TLS, within the deadline of nc.
func ServerTLS(nc net.Conn) error {
	t, ok := nc.(*tls.Conn)
	if !ok {
		return nil
	}
	err := t.HandshakeContext(context.Background())
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) && plain.Conn != nil {
		// The client may be a Boxcar client without TLS.
		_, _ = plain.Conn.Write(wire.AppendReason(nil, wire.TypeGoAway, "this server requires TLS"))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrTLS, err)
	}
	return nil
}

// FirstFrame reads the first frame of a server, which may speak another protocol.
func FirstFrame(in *Reader) (wire.Frame, error) {
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

// IsLocal reports whether only this host can reach an address. Addresses of Unix sockets
// and pipes are local.
func IsLocal(address net.Addr) bool {
	if !strings.HasPrefix(address.Network(), "tcp") {
		return true
	}
	port, err := netip.ParseAddrPort(address.String())
	return err == nil && port.Addr().Unmap().IsLoopback()
}
