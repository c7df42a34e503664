package conn

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
)

// controlBytes limits the records that TLS writes by itself between two batches, when the
// peer updates its keys.
const controlBytes = 4 << 10

var errKeyUpdates = errors.New("peer updates its TLS keys too often")

// A tlsBatchConn is the connection beneath a TLS connection. It collects the records of
// one batch, so that the Outbox can write them together and without blocking; a *tls.Conn
// alone writes each record by a blocking call.
type tlsBatchConn struct {
	net.Conn
	in io.Reader

	mu struct {
		sync.Mutex
		collects bool   // writes are collected; before the first batch they go to Conn
		sealing  bool   // a batch is being encrypted
		sealed   []byte // records that are not yet taken
		spare    []byte // buffer of the previous batch
	}
}

// NewTLSBatchConn returns a connection to pass to tls.Client or tls.Server. The Outbox of
// the TLS connection recognises it. After a TLS connection has been given to Outbox.Init,
// only the Outbox may write to it once it has sent its first batch. TLS connections made
// in another way, as by a Dialer, are supported with blocking writes.
func NewTLSBatchConn(conn net.Conn) net.Conn { return newTLSBatchConn(conn) }

func newTLSBatchConn(conn net.Conn) *tlsBatchConn {
	return &tlsBatchConn{Conn: conn, in: readerOf(conn)}
}

// Read is called by TLS.
func (s *tlsBatchConn) Read(b []byte) (int, error) { return s.in.Read(b) }

// Write is called by TLS.
func (s *tlsBatchConn) Write(b []byte) (int, error) {
	s.mu.Lock()
	if !s.mu.collects {
		s.mu.Unlock()
		return s.Conn.Write(b)
	}
	defer s.mu.Unlock()
	if !s.mu.sealing && len(s.mu.sealed)+len(b) > controlBytes {
		return 0, errKeyUpdates
	}
	s.mu.sealed = append(s.mu.sealed, b...)
	return len(b), nil
}

// seal encrypts a batch. The result starts with the records that TLS wrote by itself since
// the last call, and is valid until the next call. The caller holds the write turn.
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

// shrink frees the buffers that an idle connection does not need.
func (s *tlsBatchConn) shrink() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.sealed) == 0 {
		s.mu.sealed = nil
	}
	s.mu.spare = nil
}
