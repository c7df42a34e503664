//go:build !unix

package conn

import (
	"io"
	"net"
)

// Non-blocking writes are not supported on this system.
type socket struct{}

func socketOf(net.Conn) *socket { return nil }

func (*socket) write([]byte) (int, error) { return 0, nil }

func readerOf(conn net.Conn) io.Reader { return conn }
