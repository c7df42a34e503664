package boxcarrpc

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/virtualtime"
)

// Behind one address the slots of two servers have the same numbers: the pool refuses the second
// one of a number, and warns.
func TestAnAddressOfTwoServersIsReported(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		servers := [2]*pipes{newPipes(), newPipes()}
		serveOn(t, servers[0], echo, &ServerOptions{Name: "first"})
		serveOn(t, servers[1], echo, &ServerOptions{Name: "second"})
		var dials atomic.Int32
		var d diary
		p := newPool(t, &PoolOptions{
			Size: 2 * DefaultLanesPerConn,
			Dialer: func(ctx context.Context, address string) (net.Conn, error) {
				return servers[dials.Add(1)%2].dial(ctx, address)
			},
			Logger: slog.New(slog.NewTextHandler(writerFunc(func(b []byte) { d.add(string(b)) }), nil)),
		}, "balancer")
		time.Sleep(time.Minute)
		p.slots.mu.Lock()
		numbers := map[int32]bool{}
		for entry, lane := range p.slots.mu.lanes {
			if lane != nil {
				number, _, _, _, _ := p.slots.mu.ladder.Slot(int32(entry))
				require.False(t, numbers[number])
				numbers[number] = true
			}
		}
		p.slots.mu.Unlock()
		require.GreaterOrEqual(t, len(numbers), DefaultLanesPerConn)
		warnings := 0
		for _, line := range d.read() {
			if strings.Contains(line, "an address must be that of one server") {
				require.Contains(t, line, "address=balancer")
				warnings++
			}
		}
		require.Equal(t, 1, warnings)
	})
}
