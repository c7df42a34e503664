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

	"docstore/internal/simulate/network"
	"docstore/internal/virtualtime"
)

// requireSilence checks that a read ends at its deadline.
func requireSilence(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, c.SetReadDeadline(time.Time{}))
}

// The peer of an end that closes or is killed during an outage learns it after the outage.
func TestEndDuringOutage(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(c net.Conn, p *network.Process)
		sent string // before the end
		want error  // nil: the end of the bytes
	}{
		"close":        {func(c net.Conn, _ *network.Process) { c.Close() }, "xyz", nil},
		"kill":         {func(_ net.Conn, p *network.Process) { p.Kill() }, "xyz", nil},
		"vanish":       {func(_ net.Conn, p *network.Process) { p.Vanish() }, "xyz", syscall.ECONNRESET},
		"close unread": {func(c net.Conn, _ *network.Process) { c.Close() }, "", syscall.ECONNRESET},
	} {
		virtualtime.Test(t, func(t *testing.T) {
			n, server, client, l := pair(t)
			near, far := connect(t, client, l)
			if test.sent == "" {
				_, err := near.Write([]byte("not read"))
				require.NoError(t, err)
				time.Sleep(time.Second)
			}
			heal := n.Host("10.0.0.1", "a").Isolate()
			_, err := far.Write([]byte(test.sent))
			require.NoError(t, err)
			test.end(far, server)
			requireSilence(t, near)
			_, err = near.Write([]byte("more"))
			require.NoError(t, err, name)
			heal()
			if name == "vanish" {
				requireSilence(t, near)
				n.Host("10.0.0.1", "a").Boot()
			}
			received, err := io.ReadAll(near)
			if test.want == nil {
				require.NoError(t, err, name)
				require.Equal(t, test.sent, string(received))
				time.Sleep(time.Minute)
				_, err = near.Write([]byte("more"))
				require.ErrorIs(t, err, syscall.ECONNRESET, name)
				return
			}
			require.ErrorIs(t, err, test.want, name)
			require.Empty(t, received)
		})
	}
}

// Lost bytes are sent again at intervals that double: the longer an outage, the longer the
// connection stays silent after it.
func TestRetransmission(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		n, _, client, l := pair(t)
		near, far := connect(t, client, l)
		heal, start := n.Cut(network.Zone("b"), network.Zone("a")), time.Now()
		_, err := near.Write([]byte("x"))
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		heal()
		_, err = near.Write([]byte("y"))
		require.NoError(t, err)
		received := make([]byte, 2)
		_, err = io.ReadFull(far, received)
		require.NoError(t, err)
		require.Equal(t, "xy", string(received))
		require.Equal(t, 12600*time.Millisecond, time.Since(start).Truncate(100*time.Millisecond)) // 0.2 + 0.4 + ... + 6.4
	})
}

// Connections fail in a long outage: after minutes if they are idle, later if bytes wait.
func TestTimeouts(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		n, _, client, l := pair(t)
		near, far := connect(t, client, l)
		heal, start := n.Host("10.0.0.1", "a").Isolate(), time.Now()
		_, err := near.Write([]byte("x"))
		require.NoError(t, err)
		_, err = far.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ETIMEDOUT)
		require.Equal(t, 150*time.Second, time.Since(start))
		_, err = near.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ETIMEDOUT)
		require.Equal(t, 924*time.Second, time.Since(start))
		heal()

		// The next outage has its own time, and an idle peer is reset after it.
		near, far = connect(t, client, l)
		heal = n.Host("10.0.0.1", "a").Isolate()
		time.Sleep(100 * time.Second)
		heal()
		heal = n.Cut(network.Zone("a"), network.Zone("b"))
		time.Sleep(100 * time.Second)
		_, err = far.Write([]byte("x"))
		require.NoError(t, err)
		_, err = near.Write([]byte("x"))
		require.NoError(t, err)
		time.Sleep(100 * time.Second)
		_, err = near.Write([]byte("y"))
		require.ErrorIs(t, err, syscall.ETIMEDOUT, "no acknowledgement")
		heal()
		received, err := io.ReadAll(far)
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.Equal(t, "x", string(received))
	})
}

// A connection attempt in an outage succeeds when its packet is sent again.
func TestDialInOutage(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		n, server, client, _ := pair(t)
		heal, start := n.Host("10.0.0.1", "a").Isolate(), time.Now()
		time.AfterFunc(2*time.Second, heal)
		dial(t, client)
		require.Equal(t, 3*time.Second, time.Since(start).Truncate(time.Second)) // 1 + 2
		server.Vanish()
		start = time.Now()
		time.AfterFunc(2*time.Second, func() {
			_, err := n.Host("10.0.0.1", "a").Boot().Listen(address)
			require.NoError(t, err)
		})
		dial(t, client)
		require.Equal(t, 3*time.Second, time.Since(start).Truncate(time.Second))
		n.Host("10.0.0.1", "a").Isolate()
		start = time.Now()
		_, err := client.Dial(t.Context(), "tcp", address)
		require.ErrorIs(t, err, syscall.ETIMEDOUT)
		require.Equal(t, 127*time.Second, time.Since(start))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = client.Dial(ctx, "tcp", address)
		require.ErrorIs(t, err, context.Canceled)
		start = time.Now()
		time.AfterFunc(time.Second, client.Kill)
		_, err = client.Dial(t.Context(), "tcp", address)
		require.ErrorIs(t, err, syscall.ENETDOWN)
		require.Equal(t, time.Second, time.Since(start))
	})
}

// Concurrent writes are not mixed.
func TestConcurrentWrites(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		_, _, client, l := pair(t)
		near, far := connect(t, client, l)
		const size = 1 << 20
		for i := range 4 {
			go func() {
				if _, err := near.Write(bytes.Repeat([]byte{byte(i)}, size)); err != nil {
					t.Error(err)
				}
			}()
		}
		for range 4 {
			received := make([]byte, size)
			_, err := io.ReadFull(far, received)
			require.NoError(t, err)
			require.Equal(t, size, bytes.Count(received, received[:1]))
		}
	})
}
