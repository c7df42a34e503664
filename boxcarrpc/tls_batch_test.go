package boxcarrpc

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is sealed, and nothing else, is what the peer reads; what TLS writes by itself
// goes in front of the next batch, and is bounded.
func TestSealing(t *testing.T) {
	a := newTestTLS(t)
	serverConfig, err := a.server(t, tls.NoClientCert)()
	require.NoError(t, err)
	clientConfig, err := a.client(t, "")()
	require.NoError(t, err)
	clientConfig.ServerName = "127.0.0.1"
	near, far := net.Pipe()
	s := newTLSBatchConn(near)
	client, server := tls.Client(s, clientConfig), tls.Server(far, serverConfig)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer near.Close()
	var came bytes.Buffer
	wg.Go(func() { _, _ = io.CopyN(&came, server, 9+200<<10) })
	wg.Go(func() { _, _ = io.Copy(io.Discard, client) }) // the server's tickets
	require.NoError(t, client.Handshake())

	_, err = client.Write([]byte("hello, ")) // as it ever was
	require.NoError(t, err)
	big := bytes.Repeat([]byte("x"), 200<<10)
	small, err := s.seal(client, []byte("hi"))
	require.NoError(t, err)
	small = bytes.Clone(small)
	_, err = client.Write(big[:100]) // as an answer to new keys
	require.NoError(t, err)
	rest, err := s.seal(client, big[100:])
	require.NoError(t, err)
	_, err = near.Write(append(small, rest...))
	require.NoError(t, err)

	s.shrink()
	require.Zero(t, cap(s.mu.sealed)+cap(s.mu.spare))
	_, err = client.Write(make([]byte, ownBytes))
	require.ErrorIs(t, err, errKeyUpdates)
	near.Close()
	wg.Wait()
	require.Equal(t, "hello, hi"+string(big), came.String())
}
