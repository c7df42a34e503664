package network_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/simulate/chance"
	"docstore/internal/simulate/network"
	"docstore/internal/testseed"
	"docstore/internal/virtualtime"
)

const address = "10.0.0.1:7070"

// pair returns a network with a server that listens, and a client.
func pair(t *testing.T) (n *network.Network, server, client *network.Process, l net.Listener) {
	t.Helper()
	n = network.New(chance.New(testseed.Seed(t)))
	server, client = n.Host("10.0.0.1", "a").Boot(), n.Host("10.0.0.2", "b").Boot()
	l, err := server.Listen(address)
	require.NoError(t, err)
	return n, server, client, l
}

func dial(t *testing.T, p *network.Process) net.Conn {
	t.Helper()
	c, err := p.Dial(t.Context(), "tcp", address)
	require.NoError(t, err)
	return c
}

// connect returns both ends of a connection.
func connect(t *testing.T, client *network.Process, l net.Listener) (near, far net.Conn) {
	t.Helper()
	near = dial(t, client)
	far, err := l.Accept()
	require.NoError(t, err)
	return near, far
}

// Bytes arrive in order whatever the sizes of writes and reads, and writes wait for the reader.
func TestBytesArriveInOrder(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		_, _, client, l := pair(t)
		near, far := connect(t, client, l)
		rng := testseed.Rand(t)
		sent := make([]byte, 2<<20)
		for i := range sent {
			sent[i] = byte(rng.Uint32())
		}
		go func() {
			for rest := sent; len(rest) > 0; {
				n := min(len(rest), 1+rng.IntN(100_000))
				written, err := near.Write(rest[:n])
				if err != nil || written != n {
					t.Errorf("wrote %d of %d: %v", written, n, err)
					return
				}
				rest = rest[n:]
			}
			near.Close()
		}()
		received, err := io.ReadAll(far)
		require.NoError(t, err)
		require.True(t, bytes.Equal(sent, received))
		_, err = near.Read(make([]byte, 1))
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

func TestDeadlines(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		_, _, client, l := pair(t)
		near, far := connect(t, client, l)
		start := time.Now()
		require.NoError(t, near.SetReadDeadline(start.Add(time.Second)))
		_, err := near.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		require.True(t, timeout.Timeout())

		require.NoError(t, near.SetWriteDeadline(time.Now().Add(time.Second)))
		n, err := near.Write(make([]byte, 1<<20))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Less(t, n, 1<<20)
		require.NoError(t, near.SetDeadline(time.Time{}))
		read, err := io.ReadFull(far, make([]byte, n))
		require.NoError(t, err)
		require.Equal(t, n, read)
		// A deadline that is set during a read ends it.
		time.AfterFunc(time.Second, func() { near.SetReadDeadline(time.Now()) })
		_, err = near.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	})
}

func TestAddresses(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		n, server, client, l := pair(t)
		_, err := server.Listen(":7070")
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		near, far := connect(t, client, l)
		require.Equal(t, address, near.RemoteAddr().String())
		require.Equal(t, near.LocalAddr().String(), far.RemoteAddr().String())
		_, err = server.Dial(t.Context(), "tcp", "127.0.0.1:7070")
		require.NoError(t, err)
		_, err = client.Dial(t.Context(), "tcp", "10.0.0.1:1")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n.Host("10.0.0.3", "a") // not booted
		for _, silent := range []string{"10.0.0.3:1", "10.0.0.4:1"} {
			_, err = client.Dial(ctx, "tcp", silent)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		}
	})
}

// A peer learns that an end has closed from the end of its bytes, or from a reset: if bytes
// were not read, or when it sends more.
func TestClosedEnd(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		_, _, client, l := pair(t)
		one := make([]byte, 1)
		near, far := connect(t, client, l)
		_, err := far.Write([]byte("y"))
		require.NoError(t, err)
		require.NoError(t, far.Close())
		_, err = near.Write([]byte("x"))
		require.NoError(t, err, "the peer does not know it yet")
		_, err = near.Read(one)
		require.NoError(t, err)
		_, err = near.Read(one)
		require.ErrorIs(t, err, io.EOF)
		time.Sleep(time.Second)
		_, err = near.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.ECONNRESET)

		near, far = connect(t, client, l)
		_, err = near.Write([]byte("x"))
		require.NoError(t, err)
		time.Sleep(time.Second)
		_, err = far.Write([]byte("y"))
		require.NoError(t, err)
		require.NoError(t, far.Close())
		_, err = near.Read(one)
		require.NoError(t, err)
		for range 2 {
			_, err = near.Read(one)
			require.ErrorIs(t, err, syscall.ECONNRESET)
		}

		near, far = connect(t, client, l)
		require.NoError(t, near.(interface{ CloseWrite() error }).CloseWrite())
		_, err = near.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.EPIPE)
		_, err = far.Read(one)
		require.ErrorIs(t, err, io.EOF)
		_, err = far.Write([]byte("y"))
		require.NoError(t, err)
		_, err = near.Read(one)
		require.NoError(t, err)
	})
}

func TestKilledProcess(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		_, server, client, l := pair(t)
		near, far := connect(t, client, l)
		waiting := dial(t, client) // not accepted
		server.Kill()
		_, err := near.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		_, err = waiting.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = far.Write([]byte("x"))
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = client.Dial(t.Context(), "tcp", address)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		_, err = l.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = server.Dial(t.Context(), "tcp", address)
		require.ErrorIs(t, err, syscall.ENETDOWN)
		_, err = server.Listen(address)
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

func TestVanishedHost(t *testing.T) {
	for _, rebooted := range []bool{false, true} {
		virtualtime.Test(t, func(t *testing.T) {
			n, server, client, l := pair(t)
			near, _ := connect(t, client, l)
			server.Vanish()
			start := time.Now()
			_, err := near.Write([]byte("x"))
			require.NoError(t, err, "the peer does not know it")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = client.Dial(ctx, "tcp", address)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			want := error(syscall.ETIMEDOUT)
			if rebooted {
				n.Host("10.0.0.1", "a").Boot()
				want = syscall.ECONNRESET
			}
			_, err = near.Read(make([]byte, 1))
			require.ErrorIs(t, err, want)
			require.Equal(t, rebooted, time.Since(start) < time.Minute)
		})
	}
}

// Bytes that a cut has lost arrive after it has healed.
func TestCuts(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		n, server, client, l := pair(t)
		near, far := connect(t, client, l)
		for name, cut := range map[string]func() func(){
			"zones":   func() func() { return n.Cut(network.Zone("b"), network.Zone("a")) },
			"host":    n.Host("10.0.0.1", "a").Isolate,
			"silence": n.Host("10.0.0.1", "a").Silence,
		} {
			heal := cut()
			_, err := near.Write([]byte(name))
			require.NoError(t, err)
			require.NoError(t, far.SetReadDeadline(time.Now().Add(time.Minute)))
			_, err = far.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded, name)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			c, err := client.Dial(ctx, "tcp", address)
			cancel()
			require.Equal(t, name == "silence", err == nil, "%v: %v", name, err)
			if err == nil {
				require.NoError(t, c.Close())
				accepted, err := l.Accept()
				require.NoError(t, err)
				require.NoError(t, accepted.Close())
			}
			heal()
			require.NoError(t, far.SetReadDeadline(time.Time{}))
			text := make([]byte, len(name))
			_, err = io.ReadFull(far, text)
			require.NoError(t, err)
			require.Equal(t, name, string(text))
		}
		end := n.Host("10.0.0.2", "b").Slow(time.Second)
		start := time.Now()
		_, err := far.Write([]byte("y"))
		require.NoError(t, err)
		_, err = near.Read(make([]byte, 1))
		require.NoError(t, err)
		require.Greater(t, time.Since(start), time.Second)
		end()
		server.Reset()
		_, err = near.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	})
}
