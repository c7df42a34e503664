package credentials

import (
	"bytes"
	"context"
	"crypto/x509"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/internal/testcert"
)

// A fleet is a server and clients with mutual TLS and tokens from files.
type fleet struct {
	t       testing.TB
	dir     string
	server  *boxcarrpc.Server
	address string
	options func() *boxcarrpc.PoolOptions // options of a client
	calls   atomic.Int64
}

func newFleet(t *testing.T, ca *testcert.CA) *fleet {
	f := &fleet{t: t, dir: t.TempDir()}
	certificate, key := ca.Files(t, f.dir, "server")
	authority := ca.File(t, f.dir, "ca")
	config, err := ServerTLS(Files{Certificate: certificate, Key: key, CA: authority}, nil)
	require.NoError(t, err)
	tokens, err := OpenTokens(testcert.Write(t, f.dir, "tokens", []byte("ali "+tokenA)), nil)
	require.NoError(t, err)
	f.server = boxcarrpc.NewServer(func(ctx context.Context, _ string, _, dst []byte) ([]byte, error) {
		return append(dst, boxcarrpc.PeerOf(ctx).Identity.Name...), nil
	}, &boxcarrpc.ServerOptions{TLS: config, Authenticate: tokens.Authenticate})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f.address = l.Addr().String()
	ended := make(chan error, 1)
	go func() { ended <- f.server.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, f.server.Close())
		require.ErrorIs(t, <-ended, boxcarrpc.ErrServerClosed)
	})

	certificate, key = ca.Files(t, f.dir, "client")
	clientConfig, err := ClientTLS(Files{Certificate: certificate, Key: key, CA: authority}, nil)
	require.NoError(t, err)
	token, err := Token(testcert.Write(t, f.dir, "token", []byte(tokenA+"\n")), nil)
	require.NoError(t, err)
	// One connection per slot, so that the load makes new connections all the time.
	f.options = func() *boxcarrpc.PoolOptions {
		return &boxcarrpc.PoolOptions{Size: 3, LanesPerConn: 1, TLS: clientConfig, Token: token}
	}
	return f
}

// load makes calls with short-lived pools until stop is called. None may fail.
func (f *fleet) load() (stop func()) {
	var over atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !over.Load() {
				p, err := boxcarrpc.NewPool(discovery.Static(f.address), f.options())
				if err != nil {
					f.t.Error(err)
					return
				}
				for range 50 {
					ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
					out, err := p.Call(ctx, "not idempotent", nil, nil)
					cancel()
					if err != nil || string(out) != "ali" {
						f.t.Errorf("%q, %v", out, err)
						over.Store(true)
						break
					}
					f.calls.Add(1)
				}
				_ = p.Close()
			}
		})
	}
	return func() {
		over.Store(true)
		wg.Wait()
	}
}

// sees waits until new connections have a certificate that fulfils what, and then for
// 100 more calls.
func (f *fleet) sees(what func(server *x509.Certificate) bool) {
	for deadline := time.Now().Add(30 * time.Second); ; {
		p, err := boxcarrpc.NewPool(discovery.Static(f.address), f.options())
		require.NoError(f.t, err)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		var info boxcarrpc.CallInfo
		_, err = p.CallWith(ctx, "m", nil, nil, &info)
		cancel()
		require.NoError(f.t, err)
		require.NoError(f.t, p.Close())
		if what(info.Server.TLS.PeerCertificates[0]) {
			break
		}
		require.True(f.t, time.Now().Before(deadline), "the change is not seen")
	}
	for n := f.calls.Load(); f.calls.Load() < n+100 && !f.t.Failed(); {
		time.Sleep(time.Millisecond)
	}
}

// Certificates, authorities and tokens of both sides change while calls are made. No
// call fails.
func TestARotationFailsNoCall(t *testing.T) {
	old, next := testcert.NewCA(t, "old"), testcert.NewCA(t, "next")
	f := newFleet(t, old)
	stop := f.load()
	defer stop()
	// Files are checked once a second, when a connection begins.
	wait := func() {
		n := f.server.Stats().Accepted
		start := time.Now()
		for time.Since(start) < checkEvery+100*time.Millisecond || f.server.Stats().Accepted < n+4 {
			time.Sleep(10 * time.Millisecond)
		}
	}

	// A new certificate of the same authority. Its key is written later, so that the
	// two do not match for a moment.
	certificate, key := old.Issue(t, "server", time.Now().Add(2*time.Hour))
	var serial *big.Int
	f.sees(func(server *x509.Certificate) bool { serial = server.SerialNumber; return true })
	testcert.Write(t, f.dir, "server.crt", certificate)
	wait()
	f.sees(func(server *x509.Certificate) bool { return server.SerialNumber.Cmp(serial) == 0 })
	testcert.Write(t, f.dir, "server.key", key)
	f.sees(func(server *x509.Certificate) bool { return server.SerialNumber.Cmp(serial) != 0 })

	// A new authority: both sides trust both authorities, then the certificates
	// change, then both sides trust the new authority only.
	testcert.Write(t, f.dir, "ca.crt", bytes.Join([][]byte{old.PEM, next.PEM}, nil))
	wait()
	next.Files(t, f.dir, "server")
	next.Files(t, f.dir, "client")
	f.sees(func(server *x509.Certificate) bool { return server.Issuer.CommonName == "next" })
	wait()
	testcert.Write(t, f.dir, "ca.crt", next.PEM)
	wait()
	f.sees(func(server *x509.Certificate) bool { return server.Issuer.CommonName == "next" })

	// A new token is valid before the old one is revoked.
	testcert.Write(t, f.dir, "tokens", []byte("ali "+tokenA+"\nali "+tokenB))
	wait()
	testcert.Write(t, f.dir, "token", []byte(tokenB))
	wait()
	testcert.Write(t, f.dir, "tokens", []byte("ali "+tokenB))
	wait()
	f.sees(func(*x509.Certificate) bool { return true })
	stop()
	require.Positive(t, f.calls.Load())
}
