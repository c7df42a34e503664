package network

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// conn is one end of a connection.
type conn struct {
	process       *Process
	peer          *conn
	local, remote *net.TCPAddr
	out, in       *stream // out of one end is in of the other
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &net.OpError{Op: "read", Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
	}
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	if err != nil {
		err = &net.OpError{Op: "write", Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
	}
	return n, err
}

// Close implements net.Conn. The peer reads what was written, and then the end.
func (c *conn) Close() error {
	c.forget()
	c.out.end(net.ErrClosed)
	c.in.stop(net.ErrClosed)
	return nil
}

// CloseWrite ends the bytes to the peer.
func (c *conn) CloseWrite() error {
	c.out.end(os.NewSyscallError("write", syscall.EPIPE))
	return nil
}

// abort ends the connection by a reset.
func (c *conn) abort() {
	c.forget()
	c.peer.forget()
	reset := os.NewSyscallError("read", syscall.ECONNRESET)
	for _, s := range []*stream{c.out, c.in} {
		s.fail(reset)
	}
}

// vanish ends one end of the connection, and the other one fails when it has waited too long.
func (c *conn) vanish() {
	c.forget()
	c.in.failReads(net.ErrClosed)
	c.out.block(true)
	c.out.end(net.ErrClosed)
	time.AfterFunc(keepAlive, func() {
		timeout := os.NewSyscallError("read", syscall.ETIMEDOUT)
		c.out.fail(timeout)
		c.in.fail(timeout)
		c.peer.forget()
	})
}

// forget removes the end from the network and its process.
func (c *conn) forget() {
	c.process.mu.Lock()
	delete(c.process.mu.conns, c)
	c.process.mu.Unlock()
	n := c.process.host.network
	n.mu.Lock()
	delete(n.mu.conns, c)
	n.mu.Unlock()
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	c.in.reader.setDeadline(c.in, t)
	c.out.writer.setDeadline(c.out, t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.reader.setDeadline(c.in, t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.writer.setDeadline(c.out, t)
	return nil
}

// stream is one direction of a connection.
type stream struct {
	from, to *Host
	key      string

	reader, writer waiter

	mu struct {
		sync.Mutex
		packets  []packet
		bytes    int       // of all packets
		arrives  time.Time // of the last packet
		blocked  bool
		ended    bool   // the writer has closed its end
		writeErr error  // of later writes
		readErr  error  // of later reads, at once
		refused  func() // called by a write; nil: it is not
	}
}

// packet is the bytes of one Write, or a part of them.
type packet struct {
	bytes   []byte
	arrives time.Time
}

func newStream(from, to *Host, key string) *stream {
	s := &stream{from: from, to: to, key: key}
	s.reader.wake, s.writer.wake = make(chan struct{}, 1), make(chan struct{}, 1)
	return s
}

// waiter is the goroutine that reads or writes a stream.
type waiter struct {
	wake     chan struct{}
	deadline time.Time // guarded by the stream's lock
}

func (w *waiter) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *waiter) setDeadline(s *stream, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.deadline = t
	w.notify()
}

// wait waits until it is notified, or a time; zero times never come.
func (w *waiter) wait(until, deadline time.Time) {
	if until.IsZero() || !deadline.IsZero() && deadline.Before(until) {
		until = deadline
	}
	if until.IsZero() {
		<-w.wake
		return
	}
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-w.wake:
	case <-t.C:
	}
}

func expired(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

func (s *stream) read(p []byte) (int, error) {
	for {
		s.mu.Lock()
		var next time.Time
		switch {
		case s.mu.readErr != nil:
			err := s.mu.readErr
			s.reader.notify() // for another reader
			s.mu.Unlock()
			return 0, err
		case expired(s.reader.deadline):
			s.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			s.mu.Unlock()
			return 0, nil
		case s.mu.blocked:
		case len(s.mu.packets) > 0 && time.Now().Before(s.mu.packets[0].arrives):
			next = s.mu.packets[0].arrives
		case len(s.mu.packets) > 0 && len(s.mu.packets[0].bytes) == 0: // the end
			s.mu.Unlock()
			return 0, io.EOF
		case len(s.mu.packets) > 0:
			n := 0
			for n < len(p) && len(s.mu.packets) > 0 && len(s.mu.packets[0].bytes) > 0 && !time.Now().Before(s.mu.packets[0].arrives) {
				first := &s.mu.packets[0]
				copied := copy(p[n:], first.bytes)
				n += copied
				if first.bytes = first.bytes[copied:]; len(first.bytes) == 0 {
					s.mu.packets = s.mu.packets[1:]
				}
			}
			s.mu.bytes -= n
			s.writer.notify()
			s.mu.Unlock()
			return n, nil
		}
		deadline := s.reader.deadline
		s.mu.Unlock()
		s.reader.wait(next, deadline)
	}
}

func (s *stream) write(p []byte) (written int, err error) {
	for {
		s.mu.Lock()
		switch {
		case s.mu.writeErr != nil:
			err = s.mu.writeErr
			s.writer.notify()
		case expired(s.writer.deadline):
			err = os.ErrDeadlineExceeded
		}
		if err != nil || len(p) == 0 {
			s.mu.Unlock()
			return written, err
		}
		if n := min(len(p), window-s.mu.bytes); n > 0 {
			s.send(append([]byte(nil), p[:n]...))
			s.mu.bytes += n
			p = p[n:]
			written += n
		}
		deadline, refused := s.writer.deadline, s.mu.refused
		s.mu.Unlock()
		if refused != nil {
			refused()
		}
		if len(p) > 0 {
			s.writer.wait(time.Time{}, deadline)
		}
	}
}

// send adds a packet. The caller holds the lock.
func (s *stream) send(bytes []byte) {
	at := time.Now().Add(s.from.network.latency(s.key, s.from, s.to))
	if at.Before(s.mu.arrives) {
		at = s.mu.arrives
	}
	s.mu.arrives = at
	s.mu.packets = append(s.mu.packets, packet{bytes, at})
	s.reader.notify()
}

// end ends the bytes: the reader gets EOF behind them, and later writes err.
func (s *stream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.ended {
		return
	}
	s.mu.ended = true
	s.send(nil)
	if s.mu.writeErr == nil {
		s.mu.writeErr = err
	}
	s.writer.notify()
}

// failReads makes reads fail with err; bytes that are written wait.
func (s *stream) failReads(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.readErr == nil {
		s.mu.readErr = err
	}
	s.reader.notify()
}

// refuse calls reset for each later write, and now if bytes are waiting.
func (s *stream) refuse(reset func()) {
	s.mu.Lock()
	s.mu.refused = reset
	waiting := len(s.mu.packets) > 0
	s.mu.Unlock()
	if waiting {
		reset()
	}
}

// stop makes reads fail with err. The peer learns it when it writes.
func (s *stream) stop(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.readErr == nil {
		s.mu.readErr = err
	}
	if s.mu.writeErr == nil {
		s.mu.writeErr = os.NewSyscallError("write", syscall.EPIPE)
	}
	s.mu.packets, s.mu.bytes = nil, 0
	s.reader.notify()
	s.writer.notify()
}

// fail makes reads and writes fail, unless the end has closed.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.readErr == nil {
		s.mu.readErr = err
	}
	if s.mu.writeErr == nil {
		s.mu.writeErr = err
	}
	s.reader.notify()
	s.writer.notify()
}

// block holds bytes back, or releases them.
func (s *stream) block(blocked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.blocked == blocked {
		return
	}
	s.mu.blocked = blocked
	if blocked {
		return
	}
	draw := s.from.network.chance.Next(s.key + " again")
	again := time.Now().Add(draw.Duration(0, retransmit))
	for i := range s.mu.packets {
		if p := &s.mu.packets[i]; p.arrives.Before(again) {
			p.arrives = again
		}
	}
	if len(s.mu.packets) > 0 && s.mu.arrives.Before(again) {
		s.mu.arrives = again
	}
	s.reader.notify()
}
