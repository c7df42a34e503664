package boxcarrpc

import (
	"crypto/tls"
	"net"
)

// A Peer is who is at the other end of a connection. It does not change.
type Peer struct {
	Address net.Addr
	// Name is what the peer calls itself. It proves nothing.
	Name string
	// TLS is the state of the connection's TLS, nil without it.
	TLS *tls.ConnectionState
}

// newPeer describes the peer of a connection after its handshakes.
func newPeer(conn net.Conn, name string) *Peer {
	p := &Peer{Address: conn.RemoteAddr(), Name: name}
	if c, ok := conn.(*tls.Conn); ok {
		state := c.ConnectionState()
		p.TLS = &state
	}
	return p
}
