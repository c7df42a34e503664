package bounded

import (
	"crypto/tls"
	"math/rand/v2"
	"time"

	"docstore/boxcarrpc/session"
)

// Verify returns an error if the certificate of the peer, if it has one, is no longer valid.
// From its first call on, sessions verifies it again while the connection is open, and the
// connection is closed when it is no longer valid. The caller calls it before each request.
func (c *Conn) Verify(sessions *session.Set, state *tls.ConnectionState) error {
	c.mu.Lock()
	if c.mu.session == nil && !c.mu.closed {
		c.mu.session = sessions.Add(session.Credential{TLS: state}, c.refuse)
	}
	s := c.mu.session
	c.mu.Unlock()
	if s == nil {
		return nil // the connection has ended
	}
	return s.Verify(time.Now())
}

// refuse closes the connection because its certificate is no longer valid.
func (c *Conn) refuse(reason error) {
	c.listener.options.Logger.Warn("connection closed: the certificate of the client is no longer valid",
		"listener", c.listener.options.Name, "peer", c.RemoteAddr().String(), "reason", reason)
	_ = c.Close() // best effort
}

// Retirement returns the time at which the peer is asked to connect again, zero for never.
func (c *Conn) Retirement() time.Time { return c.retirement }

// jitter returns a time that differs from d by at most a tenth, so that clients that
// connected together, as after a restart, connect again at different times.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rand.Int64N(int64(d/5)+1))
}
