package conn

import (
	"crypto/tls"
	"io"
	"net"
)

const (
	// Receive buffer of the kernel. A small response behind a large one waits for at most
	// this much, and not for the megabytes to which the kernel would grow the buffer. It
	// limits a connection to this much in one round trip: 128 MB/s at 1 ms. With half of it
	// large responses lose a third of their throughput on one machine; with twice as much,
	// small responses wait longer behind large ones than on a separate connection.
	receiveBytes = 128 << 10
	// Unsent bytes at which the kernel accepts no more, so that frames wait in the Outbox,
	// where small ones go before bulk.
	unsentBytes = 64 << 10
	// Send buffer of the kernel: bytes that the peer has not acknowledged. Linux doubles
	// it. It is memory outside of the budget.
	sendBytes = 2 * receiveBytes
)

// Tune limits the bytes that wait in the kernel on both sides of a TCP connection, or of
// the one beneath a TLS connection. Errors are ignored: without the limits, small messages
// wait longer behind large ones.
func Tune(conn net.Conn) {
	if c, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = c.NetConn() // below TLS
	}
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetReadBuffer(receiveBytes)
		_ = c.SetWriteBuffer(sendBytes)
		_ = c.SetKeepAlive(false) // the protocol has its own keep-alives
		limitUnsent(c)
	}
}

// Close closes a connection or a listener and ignores the error, since nothing depends on
// it. For TLS it skips close_notify: that may block on a peer that does not read, and the
// frames say which messages are complete.
func Close(c io.Closer) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	c.Close()
}
