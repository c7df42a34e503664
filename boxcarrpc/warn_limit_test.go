package boxcarrpc

import (
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWarningsAreLimitedByPeerAndKind(t *testing.T) {
	var w warnLimit
	now := time.Unix(0, 0)
	from := func(n int) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, byte(n>>8), byte(n)), Port: n} }
	ask := func(n int, kind string) (int, bool) { return w.allow(now, from(n), kind) }
	for _, kind := range []string{"tls", "protocol"} {
		for i := range 100 {
			_, ok := ask(1, kind)
			require.Equal(t, i == 0, ok)
		}
	}
	_, ok := ask(2, "tls")
	require.True(t, ok, "another peer")
	now = now.Add(warnEvery)
	suppressed, ok := ask(1, "tls")
	require.True(t, ok)
	require.Equal(t, 99, suppressed)

	lines := 0
	for range 3 {
		for n := range 10 * maxWarned {
			if _, ok := ask(n, "tls"); ok {
				lines++
			}
		}
	}
	require.LessOrEqual(t, lines, maxWarned+1)
	require.LessOrEqual(t, len(w.mu.seen), maxWarned+1)
	now = now.Add(warnEvery)
	suppressed, ok = ask(5*maxWarned, "protocol")
	require.True(t, ok)
	require.Zero(t, suppressed, "the old keys are forgotten")
}

// A client that connected and sent garbage in a loop was logged each time.
func TestHostileConnectionsDoNotFillTheLog(t *testing.T) {
	var d diary
	s := serve(t, echo, &ServerOptions{Logger: slog.New(slog.NewTextHandler(writerFunc(func(b []byte) { d.add(string(b)) }), nil))})
	for range 50 {
		c := dialRaw(t, s.address)
		c.send([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n0123456789012345678901234567890123456789"))
		c.ends()
	}
	until(t, "all faults are counted", func() bool { return s.Stats().Faults == 50 })
	until(t, "a fault is logged", func() bool { return len(d.read()) > 0 })
	require.Len(t, d.read(), 1)
	require.True(t, strings.Contains(d.read()[0], "kind=protocol"), d.read()[0])
}
