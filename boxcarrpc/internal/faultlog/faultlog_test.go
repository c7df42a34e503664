package faultlog

import (
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWarningsAreLimitedByPeerAndKind(t *testing.T) {
	w := New(slog.New(slog.DiscardHandler))
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
	now = now.Add(every)
	suppressed, ok := ask(1, "tls")
	require.True(t, ok)
	require.Equal(t, 99, suppressed)

	lines := 0
	for range 3 {
		for n := range 10 * maxTracked {
			if _, ok := ask(n, "tls"); ok {
				lines++
			}
		}
	}
	require.LessOrEqual(t, lines, maxTracked+1)
	require.LessOrEqual(t, len(w.mu.seen), maxTracked+1)
	now = now.Add(every)
	suppressed, ok = ask(5*maxTracked, "protocol")
	require.True(t, ok)
	require.Zero(t, suppressed, "the old keys are forgotten")
}
