package memcached_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice/memcached"
	"docstore/docservice/memcached/memcachedtest"
	"docstore/internal/simulate/chance"
	"docstore/internal/simulate/network"
	"docstore/internal/testseed"
	"docstore/internal/virtualtime"
)

// A server that is reached through Options.Dial is marked as down while its machine is off,
// and the values that it kept are found when it is back.
func TestSimulatedServer(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		n := network.New(chance.New(testseed.Seed(t)))
		machine, client := n.Host("10.0.0.1", "a"), n.Host("10.0.0.2", "a").Boot()
		memory := memcachedtest.NewMemory()
		start := func() (p *network.Process, served chan error) {
			p, served = machine.Boot(), make(chan error, 1)
			l, err := p.Listen(":11211")
			require.NoError(t, err)
			go func() { served <- memory.Serve(l) }()
			return p, served
		}
		p, served := start()
		s, err := memcached.New([]string{"10.0.0.1:11211"}, &memcached.Options{Dial: client.Dial})
		require.NoError(t, err)
		require.True(t, s.Set(0, "a", []byte("1"), time.Time{}))
		require.True(t, s.Set(0, "b", []byte("2"), time.Time{}))
		p.Vanish()
		require.ErrorIs(t, <-served, net.ErrClosed)
		for range memcached.FailuresToOpen {
			require.True(t, s.Up(0))
			begin := time.Now()
			require.Empty(t, getMany(s, "a"))
			require.LessOrEqual(t, time.Since(begin), 2*memcached.DefaultTimeout)
		}
		require.False(t, s.Up(0))
		p, served = start()
		time.Sleep(2 * time.Second)
		require.True(t, s.Up(0))
		require.Equal(t, map[string][]byte{"a": []byte("1"), "b": []byte("2")}, getMany(s, "a", "b", "c"))
		s.Delete(0, "a")
		_, ok := s.Get(0, "a")
		require.False(t, ok)
		p.Kill()
		require.ErrorIs(t, <-served, net.ErrClosed)
		require.NoError(t, s.Close())
	})
}

// A client that does not read its answer delays no other client.
func TestMemoryWithSlowClient(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		n := network.New(chance.New(testseed.Seed(t)))
		p, client := n.Host("10.0.0.1", "a").Boot(), n.Host("10.0.0.2", "a").Boot()
		l, err := p.Listen(":11211")
		require.NoError(t, err)
		served := make(chan error, 1)
		memory := memcachedtest.NewMemory()
		go func() { served <- memory.Serve(l) }()
		s, err := memcached.New([]string{"10.0.0.1:11211"}, &memcached.Options{Dial: client.Dial})
		require.NoError(t, err)
		require.True(t, s.Set(0, "a", make([]byte, memcached.MaxItemBytes), time.Time{}))
		slow, err := client.Dial(context.Background(), "tcp", "10.0.0.1:11211")
		require.NoError(t, err)
		_, err = slow.Write([]byte("gets a\r\nset b 0 0 5\r\n"))
		require.NoError(t, err)
		time.Sleep(time.Second)
		_, ok := s.Get(0, "a")
		require.True(t, ok)
		require.NoError(t, s.Close())
		p.Kill()
		require.ErrorIs(t, <-served, net.ErrClosed)
	})
}
