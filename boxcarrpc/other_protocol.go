package boxcarrpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"syscall"

	"docstore/boxcarrpc/internal/conn"
	"docstore/boxcarrpc/internal/wire"
)

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
