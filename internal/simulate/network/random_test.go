package network_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/simulate/chance"
	"docstore/internal/simulate/network"
	"docstore/internal/testseed"
	"docstore/internal/virtualtime"
)

// echoFleet is hosts that echo bytes, and clients that check them.
type echoFleet struct {
	t         *testing.T
	network   *network.Network
	hosts     []*network.Host
	processes []*network.Process // by host
	client    *network.Process
	running   sync.WaitGroup
	stopped   atomic.Bool
	rounds    []atomic.Int64 // by host: successful ones
}

// boot starts the server of a host.
func (f *echoFleet) boot(i int) {
	p := f.hosts[i].Boot()
	f.processes[i] = p
	l, err := p.Listen(":7")
	require.NoError(f.t, err)
	f.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.running.Go(func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			})
		}
	})
}

// call echoes bytes over a connection until something fails.
func (f *echoFleet) call(i int, rng *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := f.client.Dial(ctx, "tcp", f.hosts[i].String()+":7")
	if err != nil {
		return
	}
	defer c.Close()
	start, sent := rng.IntN(256), 0
	for !f.stopped.Load() {
		_ = c.SetDeadline(time.Now().Add(time.Duration(1+rng.IntN(300)) * time.Second))
		text := make([]byte, 1+rng.IntN(20_000))
		for j := range text {
			text[j] = byte(start + sent + j)
		}
		if _, err := c.Write(text); err != nil {
			return
		}
		echo := make([]byte, len(text))
		n, err := io.ReadFull(c, echo)
		for j, b := range echo[:n] {
			if b != byte(start+sent+j) {
				f.t.Errorf("byte %d is %d", sent+j, b)
				return
			}
		}
		if err != nil {
			return
		}
		sent += n
		f.rounds[i].Add(1)
		time.Sleep(time.Duration(rng.IntN(int(20 * time.Second))))
	}
}

// fault begins a random fault.
func (f *echoFleet) fault(rng *rand.Rand) (end func()) {
	i := rng.IntN(len(f.hosts))
	h, p := f.hosts[i], f.processes[i]
	reboot := func() {
		if f.processes[i] == p { // another fault has not done it
			f.boot(i)
		}
	}
	switch rng.IntN(8) {
	case 0:
		p.Kill()
		return reboot
	case 1:
		p.Vanish()
		return reboot
	case 2:
		p.Reset()
		return func() {}
	case 3:
		return h.Isolate()
	case 4:
		return h.Silence()
	case 5:
		return h.Slow(time.Duration(rng.IntN(int(time.Second))))
	case 6:
		return f.network.Cut(network.Zone("a"), network.Zone("b"))
	default:
		return f.network.Cut(h.Is, network.Others(h.Is))
	}
}

// Whatever fails, received bytes are those that were sent, all clients succeed after the last
// fault, and nothing is left of closed connections.
func TestRandomFaults(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		rng := testseed.Rand(t)
		f := &echoFleet{t: t, network: network.New(chance.New(rng.Uint64()))}
		for i := range 4 {
			f.hosts = append(f.hosts, f.network.Host(fmt.Sprint("10.0.0.", i), string("ab"[i%2])))
		}
		f.processes, f.rounds = make([]*network.Process, 4), make([]atomic.Int64, 4)
		f.client = f.network.Host("10.0.1.0", "a").Boot()
		for i := range f.hosts {
			f.boot(i)
			for range 3 {
				rng := rand.New(rand.NewPCG(rng.Uint64(), 0))
				f.running.Go(func() {
					for !f.stopped.Load() {
						f.call(i, rng)
						time.Sleep(time.Second)
					}
				})
			}
		}
		var ends []func()
		for range 40 {
			time.Sleep(time.Duration(rng.IntN(int(time.Minute))))
			if len(ends) < 3 {
				ends = append(ends, f.fault(rng))
			}
			if len(ends) > 0 && rng.IntN(2) == 0 {
				ends[0]()
				ends = ends[1:]
			}
		}
		for _, end := range ends {
			end()
		}
		time.Sleep(20 * time.Minute)
		for i := range f.rounds {
			f.rounds[i].Store(0)
		}
		time.Sleep(time.Minute)
		for i := range f.rounds {
			require.GreaterOrEqual(t, f.rounds[i].Load(), int64(3), "host %d", i)
		}
		f.stopped.Store(true)
		time.Sleep(time.Minute)
		for _, p := range f.processes {
			p.Kill()
		}
		f.running.Wait()
		time.Sleep(time.Minute)
		require.Zero(t, f.network.Links())
	})
}
