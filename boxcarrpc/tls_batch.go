package boxcarrpc

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
)

// ownBytes bounds what TLS writes by itself between two batches: answers to a peer
// that has changed its keys.
const ownBytes = 4 << 10

var errKeyUpdates = errors.New("peer changes its keys again and again")

// A tlsBatchConn is the connection beneath a TLS connection. TLS encrypts into it, and the
// outbox writes what comes of that: so a batch goes out in one write, not one for
// each record, and without waiting, which TLS does not know. To a TLS connection that
// a Dialer or a listener has made all writes are waiting ones.
type tlsBatchConn struct {
	net.Conn
	in io.Reader

	mu struct {
		sync.Mutex
		collects bool   // what TLS writes; else it goes out at once, as in the handshakes
		sealing  bool   // a batch
		sealed   []byte // and not yet taken
		spare    []byte // the buffer of the batch before
	}
}

func newTLSBatchConn(conn net.Conn) *tlsBatchConn {
	return &tlsBatchConn{Conn: conn, in: readerOf(conn)}
}

// Read is for TLS.
func (s *tlsBatchConn) Read(b []byte) (int, error) { return s.in.Read(b) }

// Write is for TLS.
func (s *tlsBatchConn) Write(b []byte) (int, error) {
	s.mu.Lock()
	if !s.mu.collects {
		s.mu.Unlock()
		return s.Conn.Write(b)
	}
	defer s.mu.Unlock()
	if !s.mu.sealing && len(s.mu.sealed)+len(b) > ownBytes {
		return 0, errKeyUpdates
	}
	s.mu.sealed = append(s.mu.sealed, b...)
	return len(b), nil
}

// seal encrypts a batch. What it returns begins with what TLS has written by itself
// meanwhile, and is valid until the next call. Whoever holds the write turn calls it,
// and from the first call on nobody else writes to the TLS connection.
func (s *tlsBatchConn) seal(conn *tls.Conn, batch []byte) ([]byte, error) {
	s.mu.Lock()
	s.mu.collects, s.mu.sealing = true, true
	s.mu.Unlock()
	_, err := conn.Write(batch)
	s.mu.Lock()
	defer s.mu.Unlock()
	sealed := s.mu.sealed
	s.mu.sealing, s.mu.sealed, s.mu.spare = false, s.mu.spare[:0], nil
	if cap(sealed) <= keptBatch {
		s.mu.spare = sealed
	}
	return sealed, err
}

// shrink gives back the memory that an idle connection does not need.
func (s *tlsBatchConn) shrink() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.sealed) == 0 {
		s.mu.sealed = nil
	}
	s.mu.spare = nil
}
