package conn

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/testcert"
)

// The peer reads the sealed batches and nothing else. Records that TLS writes by itself go
// before the next batch and are limited.
func TestTLSBatchConnSeals(t *testing.T) {
	ca := testcert.NewCA(t, "test CA")
	pair, err := tls.X509KeyPair(ca.Issue(t, "localhost", time.Now().Add(time.Hour)))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate)
	serverConfig := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}
	clientConfig := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: "127.0.0.1"}
	near, far := net.Pipe()
	s := newTLSBatchConn(near)
	client, server := tls.Client(s, clientConfig), tls.Server(far, serverConfig)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer near.Close()
	var came bytes.Buffer
	wg.Go(func() { _, _ = io.CopyN(&came, server, 9+200<<10) })
	wg.Go(func() { _, _ = io.Copy(io.Discard, client) }) // the server's session tickets
	require.NoError(t, client.Handshake())

	_, err = client.Write([]byte("hello, ")) // before the first batch
	require.NoError(t, err)
	big := bytes.Repeat([]byte("x"), 200<<10)
	small, err := s.seal(client, []byte("hi"))
	require.NoError(t, err)
	small = bytes.Clone(small)
	_, err = client.Write(big[:100]) // as after a key update of the peer
	require.NoError(t, err)
	rest, err := s.seal(client, big[100:])
	require.NoError(t, err)
	_, err = near.Write(append(small, rest...))
	require.NoError(t, err)

	s.shrink()
	require.Zero(t, cap(s.mu.sealed)+cap(s.mu.spare))
	_, err = client.Write(make([]byte, controlBytes))
	require.ErrorIs(t, err, errKeyUpdates)
	near.Close()
	wg.Wait()
	require.Equal(t, "hello, hi"+string(big), came.String())
}
