//go:build unix

package conn

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// Sockets are read and written by non-blocking system calls, where possible without
// informing the Go scheduler: see transfer.

// A socket writes without blocking. Only the holder of the write turn uses it.
type socket struct {
	conn    syscall.RawConn
	attempt func(fd uintptr) bool // the method writeRest, bound once
	rest    []byte
	err     error
}

// socketOf returns nil for a connection that supports blocking writes only. It compares
// the exact type, because a wrapper of a socket may change Write.
func socketOf(conn net.Conn) *socket {
	raw := descriptorOf(conn)
	if raw == nil {
		return nil
	}
	s := &socket{conn: raw}
	s.attempt = s.writeRest
	return s
}

// descriptorOf returns nil if conn is not a socket.
func descriptorOf(conn net.Conn) syscall.RawConn {
	var raw syscall.RawConn
	var err error
	switch c := conn.(type) {
	case *net.TCPConn:
		raw, err = c.SyscallConn()
	case *net.UnixConn:
		raw, err = c.SyscallConn()
	}
	if err != nil {
		return nil
	}
	return raw
}

// write writes until the kernel accepts no more, which is not an error, and returns the
// number of bytes written.
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

// writeRest always returns true, so that RawConn.Write does not block.
func (s *socket) writeRest(fd uintptr) bool {
	for len(s.rest) > 0 {
		n, err := transfer(writeCall, int(fd), s.rest)
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

// A socketReader waits until a socket is readable and reads from it. Only the holder of
// the read turn uses it.
type socketReader struct {
	conn    syscall.RawConn
	attempt func(fd uintptr) bool // the method read, bound once
	b       []byte
	n       int
	err     error
}

// readerOf returns a socketReader for a socket, and conn itself for any other connection.
func readerOf(conn net.Conn) io.Reader {
	raw := descriptorOf(conn)
	if raw == nil {
		return conn
	}
	r := &socketReader{conn: raw}
	r.attempt = r.read
	return r
}

func (r *socketReader) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	r.b, r.n, r.err = b, 0, nil
	err := r.conn.Read(r.attempt)
	r.b = nil
	if err == nil {
		err = r.err
	}
	return r.n, err
}

// read returns false if nothing can be read now, so that RawConn.Read waits.
func (r *socketReader) read(fd uintptr) bool {
	for {
		n, err := transfer(readCall, int(fd), r.b)
		switch {
		case n > 0:
			r.n = n
		case err == nil:
			r.err = io.EOF
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return false
		default:
			r.err = err
		}
		return true
	}
}
