// Package authority makes certificates for the benchmarks.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"time"
)

// An Authority signs certificates that are valid for a day.
type Authority struct {
	Pool *x509.CertPool // has the authority's certificate
	root tls.Certificate
}

// New returns an authority with a new key.
func New() (*Authority, error) {
	root, err := sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	if err != nil {
		return nil, err
	}
	a := &Authority{x509.NewCertPool(), root}
	a.Pool.AddCert(root.Leaf)
	return a, nil
}

// Issue returns a certificate of a client, or of a server with addresses.
func (a *Authority) Issue(addresses ...net.IP) (tls.Certificate, error) {
	return sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "bench"}, IPAddresses: addresses, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, &a.root)
}

// sign returns a certificate with a new key, signed by another certificate, or by itself if that is nil.
func sign(template *x509.Certificate, by *tls.Certificate) (c tls.Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, err
	}
	template.SerialNumber, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(24*time.Hour)
	c = tls.Certificate{Leaf: template, PrivateKey: key}
	if by == nil {
		by = &c
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.Leaf, &key.PublicKey, by.PrivateKey)
	if err != nil {
		return c, err
	}
	c.Certificate = [][]byte{der}
	c.Leaf, err = x509.ParseCertificate(der)
	return c, err
}

// Always returns a configuration as boxcarrpc's options take it. Nil means no TLS there too.
func Always(config *tls.Config) func() (*tls.Config, error) {
	if config == nil {
		return nil
	}
	return func() (*tls.Config, error) { return config, nil }
}
