package boxcarrpc

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestIdentityOfTLS(t *testing.T) {
	none, err := IdentityOfTLS(nil)
	require.NoError(t, err)
	require.Equal(t, Identity{}, none)
	none, err = IdentityOfTLS(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{{DNSNames: []string{"unverified"}}}})
	require.NoError(t, err)
	require.Equal(t, Identity{}, none)

	spiffe := &url.URL{Scheme: "spiffe", Host: "example.org", Path: "/frontend"}
	for _, c := range []struct {
		certificate   x509.Certificate
		name, problem string
	}{
		{x509.Certificate{URIs: []*url.URL{spiffe}, DNSNames: []string{"a"}}, "spiffe://example.org/frontend", ""},
		{x509.Certificate{DNSNames: []string{"a", "b"}, Subject: pkix.Name{CommonName: "c"}}, "a", ""},
		{x509.Certificate{Subject: pkix.Name{CommonName: "Front End 1"}}, "Front End 1", ""},
		{x509.Certificate{DNSNames: []string{" local"}}, " local", ""},
		{x509.Certificate{}, "", "the name is empty"},
		{x509.Certificate{DNSNames: []string{""}, Subject: pkix.Name{CommonName: "c"}}, "", "the name is empty"},
		{x509.Certificate{DNSNames: []string{"a\x1b[2J"}}, "", "unprintable"},
		{x509.Certificate{Subject: pkix.Name{CommonName: "a\xff"}}, "", "unprintable"},
		{x509.Certificate{Subject: pkix.Name{CommonName: strings.Repeat("a", MaxIdentityBytes)}}, strings.Repeat("a", MaxIdentityBytes), ""},
		{x509.Certificate{Subject: pkix.Name{CommonName: strings.Repeat("a", MaxIdentityBytes+1)}}, "", "1025 bytes"},
	} {
		identity, err := IdentityOfTLS(&tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{&c.certificate}}})
		if c.problem != "" {
			require.ErrorContains(t, err, c.problem)
			require.False(t, identity.Authenticated())
			continue
		}
		require.NoError(t, err)
		require.Equal(t, Identity{CertificateIdentity, c.name}, identity)
		require.True(t, identity.Authenticated())
	}
}

func TestIdentitiesInMessages(t *testing.T) {
	for want, identity := range map[string]Identity{
		"anonymous":              {},
		"local":                  {Kind: LocalIdentity},
		`" local" (certificate)`: {CertificateIdentity, " local"},
		`"anonymous" (token)`:    {TokenIdentity, "anonymous"},
	} {
		require.Equal(t, want, identity.String())
	}
}

// A certificate without a name does not make an anonymous client, which might drain the
// server.
func TestNamelessCertificatesAreRefused(t *testing.T) {
	certs := newTestTLS(t)
	for _, auth := range []tls.ClientAuthType{tls.RequireAndVerifyClientCert, tls.VerifyClientCertIfGiven} {
		s := serve(t, whoami, &ServerOptions{TLS: certs.server(t, auth)})
		nameless, err := certs.client(t, "")()
		require.NoError(t, err)
		nameless.Certificates = certs.pair(t, "", time.Now().Add(time.Hour))
		said := notReady(t, &PoolOptions{TLS: func() (*tls.Config, error) { return nameless, nil }}, s.address)
		require.Contains(t, said, "client refused: the certificate does not identify the peer")
		require.Zero(t, s.Stats().Leases)
	}
}

// A server refuses what Authenticate should not return, rather than mistake it for another
// client.
func TestMalformedIdentitiesAreRefused(t *testing.T) {
	for problem, identity := range map[string]Identity{
		"the name is empty":                        {Kind: TokenIdentity},
		`has the name "operator" and is anonymous`: {Name: "operator"},
		"unknown IdentityKind(9)":                  {IdentityKind(9), "operator"},
		"unprintable":                              {TokenIdentity, "a\nb"},
	} {
		s := serve(t, whoami, &ServerOptions{Authenticate: func(*Peer, string) (Identity, error) { return identity, nil }})
		require.Contains(t, notReady(t, nil, s.address), problem)
	}
}

// Only anonymous clients of the server's host may drain a server without operators. An
// identity that is named like the absence of one has no rights.
func TestOperatorsAreAuthenticated(t *testing.T) {
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	for _, c := range []struct {
		options  ServerOptions
		identity Identity
		allowed  bool
	}{
		{ServerOptions{}, Identity{}, true},
		{ServerOptions{}, Identity{TokenIdentity, "olga"}, false},
		{ServerOptions{Operators: []string{"olga"}}, Identity{}, false},
		{ServerOptions{Operators: []string{"olga"}}, Identity{TokenIdentity, "olga"}, true},
		{ServerOptions{Operators: []string{"olga"}}, Identity{CertificateIdentity, "olga"}, true},
		{ServerOptions{Operators: []string{""}}, Identity{}, false},
		{ServerOptions{Operators: []string{"local"}}, Identity{Kind: LocalIdentity}, false},
	} {
		err := NewServer(echo, &c.options).mayOperate(&Peer{Address: local, Identity: c.identity})
		require.Equal(t, c.allowed, err == nil, "%v: %v", c.identity, err)
	}
}
