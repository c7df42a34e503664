//go:build unix

package conn

import (
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pairs returns both ends of a connection of each kind of socket.
func pairs(t *testing.T) map[string][2]net.Conn {
	all := make(map[string][2]net.Conn)
	for _, network := range []string{"tcp", "unix"} {
		address := "127.0.0.1:0"
		if network == "unix" {
			address = t.TempDir() + "/s"
		}
		ln, err := net.Listen(network, address)
		require.NoError(t, err)
		near, err := net.Dial(network, ln.Addr().String())
		require.NoError(t, err)
		far, err := ln.Accept()
		require.NoError(t, err)
		Close(ln)
		t.Cleanup(func() { Close(near); Close(far) })
		all[network] = [2]net.Conn{near, far}
	}
	return all
}

func TestReadingASocket(t *testing.T) {
	for network, ends := range pairs(t) {
		t.Run(network, func(t *testing.T) {
			near, far := ends[0], ends[1]
			r, s := readerOf(near), socketOf(far)
			require.IsType(t, &socketReader{}, r)
			b := make([]byte, 4)

			n, err := r.Read(nil)
			require.NoError(t, err)
			require.Zero(t, n, "an empty buffer is not the end of the stream")

			n, err = s.write([]byte("abcdef"))
			require.NoError(t, err)
			require.Equal(t, 6, n)
			n, err = r.Read(b)
			require.NoError(t, err)
			require.Equal(t, "abcd", string(b[:n]))
			n, err = r.Read(b)
			require.NoError(t, err)
			require.Equal(t, "ef", string(b[:n]))

			require.NoError(t, near.SetReadDeadline(time.Now().Add(-time.Second)))
			_, err = r.Read(b)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.NoError(t, near.SetReadDeadline(time.Time{}))

			wrote := make(chan error)
			go func() { // the reader may have to wait
				_, err := far.Write([]byte("xy"))
				Close(far)
				wrote <- err
			}()
			n, err = r.Read(b)
			require.NoError(t, err)
			require.NoError(t, <-wrote)
			require.Equal(t, "xy", string(b[:n]))
			_, err = r.Read(b)
			require.Equal(t, io.EOF, err)

			Close(near)
			_, err = r.Read(b)
			require.ErrorIs(t, err, net.ErrClosed)
		})
	}
}

// A reset by the peer fails both reads and writes.
func TestReadingASocketThatWasReset(t *testing.T) {
	ends := pairs(t)["tcp"]
	require.NoError(t, ends[1].(*net.TCPConn).SetLinger(0))
	Close(ends[1])
	_, err := readerOf(ends[0]).Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	_, err = socketOf(ends[0]).write([]byte("x"))
	require.ErrorIs(t, err, syscall.EPIPE)
}

func TestOtherConnectionsAreReadDirectly(t *testing.T) {
	near, far := net.Pipe()
	defer Close(near)
	defer Close(far)
	require.Equal(t, io.Reader(near), readerOf(near))
	require.Nil(t, socketOf(near))
}
