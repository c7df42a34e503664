//go:build linux || darwin

package conn

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The buffers in the kernel are limited, also below TLS.
func TestTuneLimitsKernelBuffers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	option := func(level, name int) (value int) {
		raw, err := conn.(*net.TCPConn).SyscallConn()
		require.NoError(t, err)
		require.NoError(t, raw.Control(func(fd uintptr) { value, err = unix.GetsockoptInt(int(fd), level, name) }))
		require.NoError(t, err)
		return value
	}
	before, sends := option(unix.SOL_SOCKET, unix.SO_RCVBUF), option(unix.SOL_SOCKET, unix.SO_SNDBUF)
	Tune(tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS13}))
	require.Equal(t, unsentBytes, option(unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT))
	require.NotEqual(t, before, option(unix.SOL_SOCKET, unix.SO_RCVBUF))
	require.NotEqual(t, sends, option(unix.SOL_SOCKET, unix.SO_SNDBUF))
	require.LessOrEqual(t, option(unix.SOL_SOCKET, unix.SO_SNDBUF), 2*sendBytes)
}
