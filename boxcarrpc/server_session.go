package boxcarrpc

import (
	"fmt"
	"time"

	"docstore/boxcarrpc/internal/wire"
	"docstore/boxcarrpc/session"
)

// openSession makes the server verify the credentials of the client again: at least every
// session.Interval, when the authorities change, and when the certificate expires.
func (c *serverConn) openSession() {
	credential := session.Credential{TLS: c.peer.TLS}
	if c.server.options.Authenticate != nil {
		credential.Check = c.reauthenticate
	}
	c.session = c.server.sessions.Add(credential, c.stopNotAdmitted)
}

// reauthenticate authenticates the client again. Its identity must be unchanged.
func (c *serverConn) reauthenticate() error {
	identity, err := c.server.authenticate(newPeer(c.conn, wire.Hello{Name: c.peer.Name, Zone: c.peer.Zone}), c.token)
	if err == nil && identity != c.peer.Identity {
		err = fmt.Errorf("identity changed to %v", identity)
	}
	return err
}

// stopNotAdmitted stops the connection of a client whose credentials are no longer valid, as
// if the server stopped: requests just received are refused as not processed, so that a
// client that has a new token by now loses nothing. Its streams end with the same status.
func (c *serverConn) stopNotAdmitted(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.stopping {
		c.server.faults.Warn(c.peer.Address, "unwelcome", "client is told to go away", "peer", c.peer.Address.String(), "name", c.peer.Name, "identity", c.peer.Identity.String(), "reason", err)
		c.stopLocked(refusedNotAdmitted)
		c.endStreamsLocked(refusedNotAdmitted)
	}
}

// enforceAuth verifies the client's credentials before its requests are served, if that is
// due. Usually the timer of the session was first.
//
// The leader does it as it runs a handler: if it takes long, as with an authentication
// server on another host, a follower reads on. enforceAuth reports whether the caller still
// has the turn.
func (c *serverConn) enforceAuth(now time.Time) (leads bool) {
	if !c.session.Due(now) {
		return true
	}
	number := c.beginRun()
	_ = c.session.Verify(now) // it calls stopNotAdmitted
	leads = c.turn.End(number)
	if leads {
		c.turn.clock = time.Now()
	}
	return leads
}
