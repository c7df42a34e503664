package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testcert"
)

// Clients that open connections and send no request lock out neither clients with a token, as
// Prometheus, nor probes of the health.
func TestSilentHTTPConnectionsAreReplaced(t *testing.T) {
	dir := t.TempDir()
	ca := testcert.NewCA(t, "CA")
	certificate, key := ca.Files(t, dir, "server")
	base, _ := startPublicHTTP(t, func(o *Options) {
		o.Security.Certificate, o.Security.Key = certificate, key
		o.Security.TokenFile = testcert.Write(t, dir, "tokens", []byte("prometheus "+testToken))
	})
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate)
	config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13, ServerName: "server"}
	server, err := url.Parse(base)
	require.NoError(t, err)
	for i := range httpMaxConns {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%8))}}
		conn, err := dialer.DialContext(t.Context(), "tcp", server.Host)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		if i%16 == 0 { // the others are silent before the handshake
			_ = tls.Client(conn, config).HandshakeContext(t.Context()) // another one may have replaced it
		}
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	for i := range 20 {
		require.Equal(t, http.StatusOK, answerOf(t, client, base+"/metrics", "", testToken), fmt.Sprint(i))
		require.Equal(t, http.StatusOK, answerOf(t, client, base+"/readyz", "", ""), fmt.Sprint(i))
	}
}

// One client has its share of the connections, which --client-share changes.
func TestHTTPConnectionsOfAClient(t *testing.T) {
	for share, want := range map[float64]int{1.0 / 8: 128, 0.001: 128, 0.5: 512, 1: 1024} {
		require.Equal(t, want, (&Limits{ClientShare: share}).clientConns(httpMaxConns))
	}
}
