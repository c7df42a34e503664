package simulate

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"sync"
	"time"
)

// authority issues certificates that are valid in the virtual time of a bubble.
type authority struct {
	certificate *x509.Certificate
	key         ed25519.PrivateKey
}

// bubbleTime is the time at which bubbles begin.
var bubbleTime = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// template returns a certificate for a name, which may be empty, and the hosts of all services.
func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IPAddresses: serviceIPs(),
		NotBefore: bubbleTime.AddDate(-1, 0, 0), NotAfter: bubbleTime.AddDate(1, 0, 0),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// serviceIPs returns the addresses of the echo service and of all servers of documents.
func serviceIPs() (ips []net.IP) {
	ips = append(ips, net.ParseIP(echoIP))
	for i := range mostServers {
		ips = append(ips, net.ParseIP(serverIP(i)))
	}
	return ips
}

func newAuthority(name string) (*authority, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	t := template(name)
	t.IsCA, t.BasicConstraintsValid, t.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, t, t, public, private)
	if err != nil {
		return nil, err
	}
	a := &authority{key: private}
	a.certificate, err = x509.ParseCertificate(der)
	return a, err
}

// issue issues a certificate.
func (a *authority) issue(name string) (tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template(name), a.certificate, public, a.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, err
}

// credentials are the certificates of services, and of the clients of the echo service, by the name in
// them.
type credentials struct {
	kept, both *x509.CertPool // authorities: the first, and both
	of         map[string]tls.Certificate
}

// Names in certificates. The second authority has issued that of revokedName.
const (
	echoName    = "echo"
	serverName  = "server"
	clientName  = "client"
	noName      = ""
	revokedName = "revoked"
)

// newCredentials makes the certificates, once and outside of bubbles: see Warm.
var newCredentials = sync.OnceValues(func() (*credentials, error) {
	first, err := newAuthority("first")
	if err != nil {
		return nil, err
	}
	second, err := newAuthority("second")
	if err != nil {
		return nil, err
	}
	c := &credentials{kept: x509.NewCertPool(), both: x509.NewCertPool(), of: map[string]tls.Certificate{}}
	c.kept.AddCert(first.certificate)
	c.both.AddCert(first.certificate)
	c.both.AddCert(second.certificate)
	for _, name := range []string{echoName, serverName, clientName, noName, revokedName} {
		issuer := first
		if name == revokedName {
			issuer = second
		}
		if c.of[name], err = issuer.issue(name); err != nil {
			return nil, err
		}
	}
	return c, nil
})
