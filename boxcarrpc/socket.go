package boxcarrpc

import (
	"crypto/tls"
	"io"
	"net"
)

const (
	// The kernel holds at most about this much of what a peer has sent, so that a
	// small answer behind a large one waits for that and not for the megabytes
	// that the kernel would grow its buffer to. A connection brings no more in one
	// round trip: 128 MB a second at 1 ms. With half of it large answers lose a third of
	// their speed on one machine, with twice as much small ones beside them wait for
	// longer than they do beside large ones on another connection.
	receiveBytes = 128 << 10
	// And it takes no more while so much of what it has taken is not yet sent, so
	// that what is waiting still waits where small goes before large.
	unsentBytes = 64 << 10
	// The kernel holds at most this much that a peer has not acknowledged, twice on Linux.
	// It is memory outside of the Budget, and the receiver takes no more in a round trip.
	sendBytes = 2 * receiveBytes
)

// tune bounds what waits in the kernel on both sides of a connection. A kernel
// that does not offer it serves large answers at the expense of small ones.
func tune(conn net.Conn) {
	if c, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = c.NetConn() // below TLS
	}
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetReadBuffer(receiveBytes)
		_ = c.SetWriteBuffer(sendBytes)
		_ = c.SetKeepAlive(false) // the protocol asks for signs of life itself
		limitUnsent(c)
	}
}

// shut closes a connection or a listener. Nothing can be done about an error:
// what matters has been answered for before, and the other side will find out. TLS
// says no farewell, because that waits for a peer that does not read; frames tell
// what is complete.
func closeConn(c io.Closer) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	c.Close()
}
