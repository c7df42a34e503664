package boxcarrpc

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"unicode"
)

// A Peer is who is at the other end of a connection. It does not change.
type Peer struct {
	Address net.Addr
	// Name is what the peer calls itself, as far as it can be printed: it is shown on
	// pages and terminals. It proves nothing.
	Name string
	// Identity is who the peer has proved to be, empty if it has not: what
	// ServerOptions.Authenticate says, else the name in its verified certificate.
	Identity string
	// TLS is the state of the connection's TLS, nil without it.
	TLS *tls.ConnectionState
}

// newPeer describes the peer of a connection after its handshakes.
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

// printable replaces what a terminal could take for a command.
func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return unicode.ReplacementChar
}

// CertificateName is the identity that a certificate proves: its first URI, as
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
