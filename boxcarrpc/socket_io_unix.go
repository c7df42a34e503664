//go:build unix

package boxcarrpc

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// Sockets are read and written by calls that never wait, and that the runtime is not
// told of where that is possible: see readNow and writeNow.

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
	raw := descriptorOf(conn)
	if raw == nil {
		return nil
	}
	s := &socket{conn: raw}
	s.attempt = s.writeRest
	return s
}

// descriptorOf returns nil for what is no socket.
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
		n, err := writeNow(int(fd), s.rest)
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

// A socketReader waits until a socket has something to read, and reads that. Whoever
// holds the read turn uses it.
type socketReader struct {
	conn    syscall.RawConn
	attempt func(fd uintptr) bool // the method below, made into a value once
	b       []byte
	n       int
	err     error
}

// readerOf returns what reads a connection: itself, if it is no socket.
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

// read reports whether there was something, or there never will be.
func (r *socketReader) read(fd uintptr) bool {
	for {
		n, err := readNow(int(fd), r.b)
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
