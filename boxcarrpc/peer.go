package boxcarrpc

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"unicode"
	"unicode/utf8"

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

// MaxIdentityBytes is the length of the longest name of an identity.
const MaxIdentityBytes = 1 << 10

// An IdentityKind is the way in which a peer was authenticated.
type IdentityKind uint8

// Kinds of identities. Only an identity by certificate or token has a name.
const (
	// AnonymousIdentity is a peer that was not authenticated.
	AnonymousIdentity IdentityKind = iota
	// LocalIdentity is a peer that was not authenticated, of a listener that only this host
	// can reach and that trusts it. This package does not assign it; servers of other
	// protocols do.
	LocalIdentity
	// CertificateIdentity is a peer with a verified certificate.
	CertificateIdentity
	// TokenIdentity is a peer that ServerOptions.Authenticate identified by its token.
	TokenIdentity
)

func (k IdentityKind) String() string {
	switch k {
	case AnonymousIdentity:
		return "anonymous"
	case LocalIdentity:
		return "local"
	case CertificateIdentity:
		return "certificate"
	case TokenIdentity:
		return "token"
	}
	return fmt.Sprintf("IdentityKind(%d)", uint8(k))
}

// An Identity is the authenticated identity of a peer. The zero value is an anonymous one.
// Identities with the same name are one client, with the same permissions and shares,
// whether it authenticates with a certificate or with a token.
type Identity struct {
	Kind IdentityKind
	Name string // as CheckIdentityName requires; empty unless Authenticated
}

// Authenticated reports whether the peer has proved a name.
func (i Identity) Authenticated() bool {
	return i.Kind == CertificateIdentity || i.Kind == TokenIdentity
}

// String returns the quoted name and the kind, or only the kind, for logs and messages.
func (i Identity) String() string {
	if i.Authenticated() {
		return fmt.Sprintf("%q (%v)", i.Name, i.Kind)
	}
	return i.Kind.String()
}

// check returns an error if the identity is malformed.
func (i Identity) check() error {
	switch {
	case i.Kind > TokenIdentity:
		return fmt.Errorf("unknown %v", i.Kind)
	case i.Authenticated():
		return CheckIdentityName(i.Name)
	case i.Name != "":
		return fmt.Errorf("the identity has the name %q and is %v", i.Name, i.Kind)
	}
	return nil
}

// CheckIdentityName returns an error unless a name can be that of an identity: at most
// MaxIdentityBytes of printable characters, and not empty. Blanks are allowed.
func CheckIdentityName(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > MaxIdentityBytes:
		return fmt.Errorf("the name has %d bytes; at most %d are allowed", len(name), MaxIdentityBytes)
	case !utf8.ValidString(name), strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("the name has unprintable characters")
	}
	return nil
}

// IdentityOfTLS returns the identity that the verified certificate of the peer proves: its
// first URI, as spiffe://example.org/frontend, else its first DNS name, else its common
// name. A peer of plain text, for which state is nil, or without a verified certificate is
// anonymous. A certificate without such a name, or with a malformed one, is an error.
func IdentityOfTLS(state *tls.ConnectionState) (Identity, error) {
	if state == nil || len(state.VerifiedChains) == 0 {
		return Identity{}, nil
	}
	certificate := state.VerifiedChains[0][0]
	name := certificate.Subject.CommonName
	switch {
	case len(certificate.URIs) > 0:
		name = certificate.URIs[0].String()
	case len(certificate.DNSNames) > 0:
		name = certificate.DNSNames[0]
	}
	if err := CheckIdentityName(name); err != nil {
		return Identity{}, fmt.Errorf("the certificate does not identify the peer by its URI, DNS name or common name: %w", err)
	}
	return Identity{Kind: CertificateIdentity, Name: name}, nil
}
