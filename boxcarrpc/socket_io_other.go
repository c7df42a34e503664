//go:build !unix

package boxcarrpc

import (
	"io"
	"net"
)

// A socket is what this system does not offer: a write that does not wait.
type socket struct{}

func socketOf(net.Conn) *socket { return nil }

func (*socket) write([]byte) (int, error) { return 0, nil }

func readerOf(conn net.Conn) io.Reader { return conn }
