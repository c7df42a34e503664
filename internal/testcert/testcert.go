// Package testcert makes certificates for tests.
package testcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A CA is a certificate authority for a test.
type CA struct {
	Certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	PEM         []byte
}

// NewCA creates an authority.
func NewCA(t testing.TB, name string) *CA {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &CA{Certificate: certificate, key: key, PEM: encode("CERTIFICATE", der)}
}

// Issue issues a certificate for a name, 127.0.0.1 and ::1 that is valid until end. It
// returns the certificate and its key in PEM.
func (ca *CA) Issue(t testing.TB, name string, end time.Time) (certificate, key []byte) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: end,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Certificate, &private.PublicKey, ca.key)
	require.NoError(t, err)
	privateDER, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	return encode("CERTIFICATE", der), encode("EC PRIVATE KEY", privateDER)
}

// Files issues a certificate that is valid for an hour, writes it to name.crt and
// name.key in dir, and returns their paths.
func (ca *CA) Files(t testing.TB, dir, name string) (certificate, key string) {
	certificatePEM, keyPEM := ca.Issue(t, name, time.Now().Add(time.Hour))
	return Write(t, dir, name+".crt", certificatePEM), Write(t, dir, name+".key", keyPEM)
}

// File writes the authority's certificate to name.crt in dir.
func (ca *CA) File(t testing.TB, dir, name string) string {
	return Write(t, dir, name+".crt", ca.PEM)
}

// Write writes a file atomically by renaming a new one.
func Write(t testing.TB, dir, name string, content []byte) (path string) {
	path = filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path+".new", content, 0o600))
	require.NoError(t, os.Rename(path+".new", path))
	return path
}

func serial(t testing.TB) *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	require.NoError(t, err)
	return n
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
