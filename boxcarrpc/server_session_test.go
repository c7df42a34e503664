package boxcarrpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/session"
	"docstore/internal/testcert"
	"docstore/internal/virtualtime"
)

// A client that only receives sent nothing for which the server verified its credentials: a
// revoked one got 3 minutes of messages. A removed authority ended no connection.
func TestRefusedClientsReceiveNothingMore(t *testing.T) {
	const untilRefused, life = time.Minute, 2 * time.Minute
	for name, test := range map[string]struct {
		refuse func(k *keys, c *rotation)
		after  time.Duration // since the start
		within time.Duration
	}{
		"token":       {func(k *keys, _ *rotation) { k.set(nil) }, untilRefused, session.Interval},
		"authority":   {func(_ *keys, c *rotation) { c.trust(c.other) }, untilRefused, 2 * time.Second},
		"certificate": {func(*keys, *rotation) {}, life, 2 * time.Second},
	} {
		for _, every := range []time.Duration{time.Second, time.Hour} {
			t.Run(name, func(t *testing.T) {
				virtualtime.Test(t, func(t *testing.T) {
					c, k, l := newRotation(t), &keys{names: map[string]string{"open sesame": "ali"}}, newPipes()
					s := serveOn(t, l, echo, &ServerOptions{TLS: c.get, Authenticate: k.authenticate, StreamHandler: pushEvery(every)})
					config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: c.certs.roots, ServerName: "localhost"}
					config.Certificates = c.certs.pair(t, "frontend", time.Now().Add(life))
					start := time.Now()
					p := newPool(t, &PoolOptions{
						Size: 1, Dialer: l.dial, Token: fixed("open sesame"), TLS: func() (*tls.Config, error) { return config, nil },
					}, "pipe")
					stream := open(t, p, "watch")
					time.AfterFunc(untilRefused, func() { test.refuse(k, c) })
					var err error
					for err == nil {
						_, err = stream.Receive(nil)
					}
					require.Equal(t, CodeUnavailable, CodeOf(err))
					require.ErrorContains(t, err, "no longer authenticated")
					require.GreaterOrEqual(t, time.Since(start), test.after-time.Second)
					require.LessOrEqual(t, time.Since(start), test.after+test.within)
					until(t, "its connection is closed", func() bool { return s.Stats().Connections == 0 })
				})
			})
		}
	}
}

// pushEvery returns a handler that sends a message each d.
func pushEvery(d time.Duration) StreamHandler {
	return func(ctx context.Context, _ string, s *ServerStream) error {
		ticker := time.NewTicker(d)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
			}
			if err := s.Send([]byte("news")); err != nil {
				return err
			}
		}
	}
}

// A rotation is the replaceable configuration of a server.
type rotation struct {
	certs  *testTLS
	other  *testcert.CA
	config atomic.Pointer[tls.Config]
}

func newRotation(t *testing.T) *rotation {
	c := &rotation{certs: newTestTLS(t), other: testcert.NewCA(t, "other")}
	config, err := c.certs.server(t, tls.RequireAndVerifyClientCert)()
	require.NoError(t, err)
	c.config.Store(config)
	return c
}

func (c *rotation) get() (*tls.Config, error) { return c.config.Load(), nil }

// trust replaces the authorities.
func (c *rotation) trust(ca *testcert.CA) {
	config := c.config.Load().Clone()
	config.ClientCAs = x509.NewCertPool()
	config.ClientCAs.AddCert(ca.Certificate)
	c.config.Store(config)
}
