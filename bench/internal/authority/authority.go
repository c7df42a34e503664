// Package authority makes certificates for the benchmarks.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"time"
)

// An Authority signs certificates that are valid for a day.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pool        *x509.CertPool
}

// New returns an authority with a new key.
func New() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a := &Authority{certificate: certificate, key: key, pool: x509.NewCertPool()}
	a.pool.AddCert(certificate)
	return a, nil
}

func (a *Authority) issue(addresses ...net.IP) (pair tls.Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: a.certificate.NotAfter, IPAddresses: addresses,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// Server returns the configuration of a server that requires client certificates.
func (a *Authority) Server(host string) (func() (*tls.Config, error), error) {
	certificate, err := a.issue(net.ParseIP(host))
	config := &tls.Config{
		Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13,
		ClientCAs: a.pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}
	return func() (*tls.Config, error) { return config, nil }, err
}

// Client returns the configuration of a client with a certificate.
func (a *Authority) Client() (func() (*tls.Config, error), error) {
	certificate, err := a.issue()
	config := &tls.Config{
		Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13,
		RootCAs: a.pool, ClientSessionCache: tls.NewLRUClientSessionCache(1 << 10), // as in package credentials
	}
	return func() (*tls.Config, error) { return config, nil }, err
}
