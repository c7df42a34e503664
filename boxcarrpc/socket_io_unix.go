//go:build unix

package boxcarrpc

import (
	"errors"
	"net"
	"syscall"
)

// A socket writes what the kernel takes without waiting. Whoever holds the write
// turn uses it.
type socket struct {
	conn    syscall.RawConn
	attempt func(fd uintptr) bool // the method below, made into a value once
	rest    []byte
	err     error
}

// socketOf returns nil for a connection that only knows waiting writes. It looks
// at the very type, because a type around a socket may do something of its own
// in Write.
func socketOf(conn net.Conn) *socket {
	var raw syscall.RawConn
	var err error
	switch c := conn.(type) {
	case *net.TCPConn:
		raw, err = c.SyscallConn()
	case *net.UnixConn:
		raw, err = c.SyscallConn()
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	s := &socket{conn: raw}
	s.attempt = s.writeRest
	return s
}

// write returns how much of b the kernel has taken. That it takes no more now is
// no error.
func (s *socket) write(b []byte) (n int, err error) {
	s.rest, s.err = b, nil
	err = s.conn.Write(s.attempt)
	n = len(b) - len(s.rest)
	s.rest = nil
	if err == nil {
		err = s.err
	}
	return n, err
}

// writeRest always says that it is done, so that nobody waits.
func (s *socket) writeRest(fd uintptr) bool {
	for len(s.rest) > 0 {
		n, err := syscall.Write(int(fd), s.rest)
		switch {
		case n > 0:
			s.rest = s.rest[n:]
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return true
		default:
			s.err = err
			return true
		}
	}
	return true
}
