package boxcarrpc

import (
	"crypto/tls"
	"net"
	"strings"
	"unicode"

	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/internal/wire"
)

// A Peer describes the other end of a connection. It is immutable.
type Peer struct {
	Address net.Addr
	// Name is the name that the peer gave itself, with unprintable characters replaced, for
	// pages and terminals. It is not authenticated.
	Name string
	// Zone is the zone that the peer says it is in, empty if unknown. It is treated as Name.
	Zone string
	// Identity is the authenticated identity of the peer: the result of
	// ServerOptions.Authenticate, else that of IdentityOfTLS.
	Identity Identity
	// TLS is the state of the TLS connection, nil for plain text.
	TLS *tls.ConnectionState

	index int32 // of a server, in its pool
}

// Client returns the client that the peer is, for limits and shares: all peers with the name
// of its identity or, for a peer that did not authenticate, at its address.
func (p *Peer) Client() budget.Client {
	if p.Identity.Authenticated() {
		return budget.ClientNamed(p.Identity.Name)
	}
	return budget.ClientAt(p.Address)
}

// newPeer describes the peer of a connection after the handshakes.
func newPeer(conn net.Conn, hello wire.Hello) *Peer {
	p := &Peer{Address: conn.RemoteAddr(), Name: strings.Map(printable, hello.Name), Zone: strings.Map(printable, hello.Zone)}
	if c, ok := conn.(*tls.Conn); ok {
		state := c.ConnectionState()
		p.TLS = &state
		p.Identity, _ = IdentityOfTLS(p.TLS) // a server refuses a client without a name: see Server.authenticate
	}
	return p
}

// printable replaces characters that a terminal could interpret as a command.
func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return unicode.ReplacementChar
}
