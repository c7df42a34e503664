package network

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// conn is one end of a connection. It is the state of the process and of its kernel.
type conn struct {
	link          *link
	peer          *conn
	process       *Process
	local, remote *net.TCPAddr
	key           string // of the packets that this end sends

	reader, writer waiter

	// The rest is guarded by link.mu.

	inbox   []packet  // to this end
	bytes   int       // of inbox
	arrives time.Time // of the last packet to this end that was not lost

	readErr, writeErr error // of later calls, at once
	gone              bool  // the kernel answers bytes and probes by a reset
	off               bool  // the machine is off: nothing is answered
	lost              bool  // packets from this end are lost

	unsent time.Time // of the first packet from this end that is lost; zero: none
}

// packet is the bytes of one Write or a part of them, or the end of all bytes.
type packet struct {
	bytes   []byte
	err     error     // io.EOF or a reset, and no bytes
	arrives time.Time // never: the packet is lost, and sent again after the outage
}

func (p *packet) lost() bool { return p.arrives.Equal(never) }

// never is later than all times of a simulation.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// link is a connection.
type link struct {
	network *Network
	ends    [2]*conn

	mu struct {
		sync.Mutex
		outage int       // number of the outage
		out    bool      // an outage is in progress
		since  time.Time // of the outage
	}
}

func newLink(client, server *Process, local, remote *net.TCPAddr, key string) *link {
	k := &link{network: client.host.network}
	a := &conn{link: k, process: client, local: local, remote: remote, key: key + " out"}
	b := &conn{link: k, process: server, local: remote, remote: local, key: key + " in"}
	a.peer, b.peer = b, a
	k.ends = [2]*conn{a, b}
	for _, c := range k.ends {
		c.reader.init()
		c.writer.init()
	}
	return k
}

// update runs f with the lock, and forgets the connection if both kernels have.
func (k *link) update(f func()) {
	k.mu.Lock()
	f()
	done := k.ends[0].gone && k.ends[1].gone && !k.ends[0].off && !k.ends[1].off
	k.mu.Unlock()
	if done {
		k.forget()
	}
}

func (k *link) forget() {
	for _, c := range k.ends {
		c.process.mu.Lock()
		c.process.mu.conns = without(c.process.mu.conns, c)
		c.process.mu.Unlock()
	}
	n := k.network
	n.mu.Lock()
	n.mu.links = without(n.mu.links, k)
	n.mu.Unlock()
}

// without removes an element from a list that may have it.
func without[T comparable](list []T, x T) []T {
	if i := slices.Index(list, x); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// after runs f with the lock after a time.
func (k *link) after(d time.Duration, f func()) { time.AfterFunc(d, func() { k.update(f) }) }

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	c.reader.turn <- struct{}{}
	n, err := c.read(p)
	<-c.reader.turn
	return n, c.opError("read", err)
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	c.writer.turn <- struct{}{}
	n, err := c.write(p)
	<-c.writer.turn
	return n, c.opError("write", err)
}

func (c *conn) opError(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	if number := syscall.Errno(0); errors.As(err, &number) {
		err = os.NewSyscallError(op, number)
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

func (c *conn) read(p []byte) (int, error) {
	for {
		c.link.mu.Lock()
		n, due, deadline, err := c.take(p)
		c.link.mu.Unlock()
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		c.reader.wait(due, deadline)
	}
}

// take reads the bytes that have arrived. If there are none, it returns when the next packet
// arrives, and the deadline, or zero times.
func (c *conn) take(p []byte) (n int, due, deadline time.Time, err error) {
	if c.readErr != nil {
		return 0, due, deadline, c.readErr
	}
	deadline = c.reader.deadline
	if expired(deadline) {
		return 0, due, deadline, os.ErrDeadlineExceeded
	}
	now := time.Now()
	for n < len(p) && len(c.inbox) > 0 {
		first := &c.inbox[0]
		if first.arrives.After(now) {
			due = first.arrives
			break
		}
		if first.err != nil {
			if n == 0 {
				err = first.err
			}
			break
		}
		copied := copy(p[n:], first.bytes)
		n += copied
		if first.bytes = first.bytes[copied:]; len(first.bytes) == 0 {
			c.inbox = c.inbox[1:]
		}
	}
	if c.bytes -= n; n > 0 {
		c.peer.writer.notify()
	}
	return n, due, deadline, err
}

func (c *conn) write(p []byte) (written int, err error) {
	for {
		var deadline time.Time
		c.link.mu.Lock()
		deadline = c.writer.deadline
		switch {
		case c.writeErr != nil:
			err = c.writeErr
		case expired(deadline):
			err = os.ErrDeadlineExceeded
		default:
			if n := min(len(p), window-c.peer.bytes); n > 0 {
				c.send(packet{bytes: append([]byte(nil), p[:n]...)})
				p = p[n:]
				written += n
			}
		}
		c.link.mu.Unlock()
		if err != nil || len(p) == 0 {
			return written, err
		}
		c.writer.wait(time.Time{}, deadline)
	}
}

// send sends a packet to the peer.
func (c *conn) send(p packet) {
	peer := c.peer
	peer.bytes += len(p.bytes)
	p.arrives = never
	if c.passes() && !peer.pending() {
		p.arrives = c.arrival()
	} else if c.unsent.IsZero() {
		c.unsent = time.Now()
	}
	peer.inbox = append(peer.inbox, p)
	if peer.gone && p.err == nil && !p.lost() {
		c.link.after(time.Until(p.arrives), peer.answerByReset)
	}
	peer.reader.notify()
}

// pending reports whether packets to this end are lost.
func (c *conn) pending() bool {
	return len(c.inbox) > 0 && c.inbox[len(c.inbox)-1].lost()
}

// arrival returns when a packet of this end arrives that is sent now.
func (c *conn) arrival() time.Time {
	at := time.Now().Add(c.link.network.latency(c.key, c.process.host, c.peer.process.host))
	if at.Before(c.peer.arrives) {
		at = c.peer.arrives
	}
	c.peer.arrives = at
	return at
}

// Close implements net.Conn. The peer reads what was written, and then the end, or a reset if
// bytes from it have arrived that were not read.
func (c *conn) Close() error {
	c.link.update(func() {
		reset := !c.gone && c.unread()
		if !reset {
			c.end()
		}
		c.leave(net.ErrClosed)
		if reset {
			c.answerByReset()
		}
	})
	return nil
}

// reset ends a connection that was not accepted.
func (c *conn) reset() {
	c.link.update(func() {
		c.leave(net.ErrClosed)
		c.answerByReset()
	})
}

// unread reports whether bytes have arrived that were not read. Those that arrive later are
// answered by a reset.
func (c *conn) unread() (unread bool) {
	now := time.Now()
	for _, p := range c.inbox {
		switch {
		case p.err != nil || p.lost():
		case p.arrives.After(now):
			c.link.after(p.arrives.Sub(now), c.answerByReset)
		default:
			unread = true
		}
	}
	return unread
}

// CloseWrite ends the bytes to the peer.
func (c *conn) CloseWrite() error {
	c.link.update(c.end)
	return nil
}

// end ends the bytes to the peer.
func (c *conn) end() {
	if c.writeErr == nil {
		c.send(packet{err: io.EOF})
		c.writeErr = syscall.EPIPE
		c.writer.notify()
	}
}

// leave ends the connection of this end. Later calls return err.
func (c *conn) leave(err error) {
	c.gone = true
	closed := errors.Is(err, net.ErrClosed)
	if c.readErr == nil || closed {
		c.readErr = err
	}
	if c.writeErr == nil || closed {
		c.writeErr = err
	}
	c.reader.notify()
	c.writer.notify()
}

// answerByReset sends a reset to the peer, whose bytes or probe have reached a kernel that
// does not know the connection.
func (c *conn) answerByReset() {
	if !c.passes() || c.peer.lost || c.peer.gone {
		return
	}
	c.link.after(time.Until(c.arrival()), c.peer.receiveReset)
}

// receiveReset ends the connection of this end. It can still read what has arrived.
func (c *conn) receiveReset() {
	if c.gone {
		return
	}
	now := time.Now()
	for i, p := range c.inbox {
		if p.arrives.After(now) {
			c.inbox = c.inbox[:i]
			break
		}
	}
	c.inbox = append(c.inbox, packet{err: syscall.ECONNRESET, arrives: now})
	readErr := c.readErr
	c.leave(syscall.ECONNRESET)
	c.readErr = readErr
}

// fail ends the connection of both ends.
func (k *link) fail(err error) {
	k.update(func() {
		for _, c := range k.ends {
			if !c.gone {
				c.leave(err)
			}
		}
	})
}

// turnOff ends the connection of a machine that loses power. The peer does not know.
func (c *conn) turnOff() {
	c.link.update(func() {
		c.leave(net.ErrClosed)
		c.off = true
		c.lose()
		c.peer.lose()
		c.link.watch()
	})
}

// turnOn makes the machine answer again. It does not know the connection.
func (c *conn) turnOn() {
	c.link.update(func() {
		c.off = false
		c.peer.inbox = arrived(c.peer.inbox) // it does not send them again
		c.resume()
		c.link.watch()
	})
}

func arrived(packets []packet) []packet {
	for i, p := range packets {
		if p.lost() {
			return packets[:i]
		}
	}
	return packets
}

// setLost begins or ends the loss of packets from each end.
func (k *link) setLost(lost [2]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, c := range k.ends {
		c.lost = lost[i]
	}
	for _, c := range k.ends {
		c.lose()
		c.resume()
	}
	k.watch()
}

// lose loses the packets that are on the way to this end, if packets do not pass.
func (c *conn) lose() {
	from, now := c.peer, time.Now()
	if from.passes() {
		return
	}
	for i := range c.inbox {
		if p := &c.inbox[i]; p.arrives.After(now) {
			p.arrives = never
			if from.unsent.IsZero() {
				from.unsent = now
			}
		}
	}
	c.arrives = now
}

// passes reports whether packets of this end reach the other one.
func (c *conn) passes() bool { return !c.lost && !c.off && !c.peer.off }

// resume sends lost packets to this end again, and resets the connection of its peer if this
// end does not know it, when packets pass.
func (c *conn) resume() {
	from := c.peer
	if !from.passes() {
		return
	}
	if c.pending() {
		at := retransmission(from.unsent)
		draw := c.link.network.chance.Next(from.key + " again")
		at = at.Add(draw.Duration(0, time.Millisecond))
		for i := range c.inbox {
			if p := &c.inbox[i]; p.lost() {
				p.arrives = at
			}
		}
		c.arrives = at
		c.reader.notify()
	}
	from.unsent = time.Time{}
	if !c.gone || from.gone {
		return
	}
	answer := time.Until(c.arrives)
	if answer <= 0 {
		if n := len(from.inbox); n > 0 && from.inbox[n-1].err != nil {
			return
		}
		draw := c.link.network.chance.Next(from.key + " probe")
		answer = draw.Duration(0, probeInterval)
	}
	c.link.after(answer, c.answerByReset)
}

// retransmission returns the time of the first retransmission after now of a packet that was
// sent first at a time.
func retransmission(sent time.Time) time.Time {
	wait, now := firstRetransmission, time.Now()
	for !sent.After(now) {
		sent = sent.Add(wait)
		wait = min(2*wait, lastRetransmission)
	}
	return sent
}

// watch begins or ends an outage: ends that hear nothing for too long fail.
func (k *link) watch() {
	out := false
	for _, c := range k.ends {
		out = out || c.lost || c.off
	}
	if out == k.mu.out {
		return
	}
	k.mu.out, k.mu.since = out, time.Now()
	k.mu.outage++
	if !out {
		return
	}
	outage := k.mu.outage
	timeout := func(waits bool) func() {
		return func() {
			for _, c := range k.ends {
				if k.mu.out && k.mu.outage == outage && !c.gone && c.peer.pending() == waits {
					c.leave(syscall.ETIMEDOUT)
				}
			}
		}
	}
	k.after(keepAlive, timeout(false))
	k.after(giveUp, timeout(true))
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error { return c.setDeadlines(t, &c.reader, &c.writer) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(t, &c.reader) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, &c.writer) }

func (c *conn) setDeadlines(t time.Time, waiters ...*waiter) error {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if errors.Is(c.readErr, net.ErrClosed) {
		return c.opError("set", net.ErrClosed)
	}
	for _, w := range waiters {
		w.deadline = t
		w.notify()
	}
	return nil
}

// waiter is the goroutine that reads or writes.
type waiter struct {
	turn     chan struct{} // full: a goroutine reads or writes
	wake     chan struct{} // full: something has changed
	timer    *time.Timer   // of the goroutine
	deadline time.Time     // guarded by link.mu
}

func (w *waiter) init() {
	w.turn, w.wake = make(chan struct{}, 1), make(chan struct{}, 1)
}

func (w *waiter) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// wait waits until it is notified, or a time; zero times never come.
func (w *waiter) wait(until, deadline time.Time) {
	if until.IsZero() || !deadline.IsZero() && deadline.Before(until) {
		until = deadline
	}
	if until.IsZero() || until.Equal(never) {
		<-w.wake
		return
	}
	if w.timer == nil {
		w.timer = time.NewTimer(time.Until(until))
	} else {
		w.timer.Reset(time.Until(until))
	}
	select {
	case <-w.wake:
		w.timer.Stop()
	case <-w.timer.C:
	}
}

func expired(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }
