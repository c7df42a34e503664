package conn

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc/internal/wire"
)

// A bulkSender sends full frames of bulk data. Each read is as long as possible.
type bulkSender struct {
	net.Conn
	unread []byte
}

func (s *bulkSender) Read(b []byte) (n int, err error) {
	for n < len(b) {
		if len(s.unread) == 0 {
			s.unread = wire.AppendData(nil, 0, 1, make([]byte, wire.DataRoom))
		}
		copied := copy(b[n:], s.unread)
		n, s.unread = n+copied, s.unread[copied:]
	}
	return n, nil
}

// No part of a frame is left, and moved, after a read that fills the largest buffer.
func TestFullReadsOfBulkDataEndWithAFrame(t *testing.T) {
	var r Reader
	r.Init(&bulkSender{}, nil)
	for r.Held() < MaxReadBuffer {
		_, err := r.Next()
		require.NoError(t, err)
	}
	for range 2 { // the first read completes the frames that smaller buffers have begun
		for len(r.Unread()) > 0 {
			_, ok, err := r.Buffered()
			require.NoError(t, err)
			require.True(t, ok)
		}
		require.NoError(t, r.Read())
		require.Equal(t, MaxReadBuffer, len(r.Unread()))
	}
}
