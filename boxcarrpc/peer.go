package boxcarrpc

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"unicode"
)

// A Peer describes the other end of a connection. It is immutable.
type Peer struct {
	Address net.Addr
	// Name is the name that the peer gave itself, with unprintable characters replaced, for
	// pages and terminals. It is not authenticated.
	Name string
	// Identity is the authenticated identity of the peer, or empty: the result of
	// ServerOptions.Authenticate, else the name in its verified certificate.
	Identity string
	// TLS is the state of the TLS connection, nil for plain text.
	TLS *tls.ConnectionState

	index int32 // of a server, in its pool
}

// newPeer describes the peer of a connection after the handshakes.
func newPeer(conn net.Conn, name string) *Peer {
	p := &Peer{Address: conn.RemoteAddr(), Name: strings.Map(printable, name)}
	if c, ok := conn.(*tls.Conn); ok {
		state := c.ConnectionState()
		p.TLS = &state
		if len(state.VerifiedChains) > 0 {
			p.Identity = CertificateName(state.VerifiedChains[0][0])
		}
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

// CertificateName returns the identity that a certificate proves: its first URI, as
// spiffe://example.org/frontend, else its first DNS name, else its common name.
func CertificateName(c *x509.Certificate) string {
	switch {
	case len(c.URIs) > 0:
		return c.URIs[0].String()
	case len(c.DNSNames) > 0:
		return c.DNSNames[0]
	}
	return c.Subject.CommonName
}
