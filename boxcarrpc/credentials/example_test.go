package credentials_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/credentials"
	"docstore/boxcarrpc/discovery"
)

// A server with TLS and a client with a token.
func Example() {
	dir := writeFiles(map[string]string{
		"tokens":         "frontend 5f0c9d3be1a94f0fb1f7c0a1\n",
		"frontend.token": "5f0c9d3be1a94f0fb1f7c0a1\n",
	})
	defer os.RemoveAll(dir)
	path := func(name string) string { return filepath.Join(dir, name) }

	config, err := credentials.ServerTLS(credentials.Files{Certificate: path("be.crt"), Key: path("be.key")}, nil)
	check(err)
	tokens, err := credentials.OpenTokens(path("tokens"), nil)
	check(err)
	server := boxcarrpc.NewServer(func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
		return fmt.Appendf(dst, "hello %s", boxcarrpc.PeerOf(ctx).Identity.Name), nil
	}, &boxcarrpc.ServerOptions{TLS: config, Authenticate: tokens.Authenticate})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	go server.Serve(listener)
	defer server.Close()

	config, err = credentials.ClientTLS(credentials.Files{CA: path("be.crt")}, nil)
	check(err)
	token, err := credentials.Token(path("frontend.token"), nil)
	check(err)
	pool, err := boxcarrpc.NewPool(discovery.Static(listener.Addr().String()), &boxcarrpc.PoolOptions{TLS: config, Token: token})
	check(err)
	defer pool.Close()
	answer, err := pool.Call(context.Background(), "/greeter.v1.Greeter/Greet", nil, nil)
	check(err)
	fmt.Println(string(answer))
	// Output: hello frontend
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// writeFiles writes the given files and a self-signed certificate, be.crt and be.key.
func writeFiles(files map[string]string) (dir string) {
	dir, err := os.MkdirTemp("", "credentials")
	check(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "be"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check(err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	check(err)
	files["be.crt"] = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}))
	files["be.key"] = string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
	for name, content := range files {
		check(os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return dir
}
