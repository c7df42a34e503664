//go:build unix

package boxcarrpc

import (
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pairs are the two ends of a connection of each kind that is a socket.
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
		closeConn(ln)
		t.Cleanup(func() { closeConn(near); closeConn(far) })
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
			require.Zero(t, n, "nothing can be read into nothing, and that is not the end")

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
			go func() { // it may be waited for
				_, err := far.Write([]byte("xy"))
				closeConn(far)
				wrote <- err
			}()
			n, err = r.Read(b)
			require.NoError(t, err)
			require.NoError(t, <-wrote)
			require.Equal(t, "xy", string(b[:n]))
			_, err = r.Read(b)
			require.Equal(t, io.EOF, err)

			closeConn(near)
			_, err = r.Read(b)
			require.ErrorIs(t, err, net.ErrClosed)
		})
	}
}

// A peer that resets its end is an error of the reading and of the writing.
func TestReadingASocketThatWasReset(t *testing.T) {
	ends := pairs(t)["tcp"]
	require.NoError(t, ends[1].(*net.TCPConn).SetLinger(0))
	closeConn(ends[1])
	_, err := readerOf(ends[0]).Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	_, err = socketOf(ends[0]).write([]byte("x"))
	require.ErrorIs(t, err, syscall.EPIPE)
}

func TestWhatIsNoSocketReadsForItself(t *testing.T) {
	near, far := net.Pipe()
	defer closeConn(near)
	defer closeConn(far)
	require.Equal(t, io.Reader(near), readerOf(near))
	require.Nil(t, socketOf(near))
}
