//go:build linux

// All of 127.0.0.0/8 is this machine only on Linux.
package gossip

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/boxcarrpc/discovery"
	"docstore/internal/testseed"
)

// A probe that is under way when a member is shut down ends by itself, later.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

// A network of loopback addresses, 127.0.7.1 and so on, that a test can part.
type network struct {
	mu   sync.Mutex
	part map[string]int // of each address
}

func (n *network) parted(a, b string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.part[a] != n.part[b]
}

func (n *network) set(address string, part int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.part[address] = part
}

var errParted = errors.New("no route")

// A transport is memberlist's own, through a network that may be parted.
type transport struct {
	*memberlist.NetTransport
	network *network
	self    string
}

func (t *transport) to(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err == nil && t.network.parted(t.self, host) {
		return errParted
	}
	return err
}

func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if t.to(a.Addr) == nil {
		return t.NetTransport.WriteToAddress(b, a)
	}
	return time.Now(), nil // lost on the way
}

func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if err := t.to(a.Addr); err != nil {
		return nil, err
	}
	return t.NetTransport.DialAddressTimeout(a, timeout)
}

// A cluster is members on loopback addresses, in this process.
type cluster struct {
	t       *testing.T
	network *network
	members map[int]*Member // by the last byte of their address
	seed    int
}

const gossipPort = 7946

func host(n int) string { return fmt.Sprintf("127.0.7.%d", n) }

// start adds a member.
func (c *cluster) start(n int, kind Kind) *Member {
	o := &Options{Kind: kind, Bind: fmt.Sprintf("%s:%d", host(n), gossipPort), RejoinInterval: 500 * time.Millisecond}
	if kind == Backend {
		o.Server.Address = fmt.Sprintf("be-%d:7070", n)
	}
	o.Configure = func(config *memberlist.Config) {
		// Fifty members of one process on a busy machine answer late, and have better
		// to do than to compress.
		config.ProbeTimeout = 900 * time.Millisecond
		config.SuspicionMult, config.SuspicionMaxTimeoutMult = 3, 2
		config.EnableCompression = false
		inner, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{config.BindAddr}, BindPort: config.BindPort, Logger: config.Logger,
		})
		require.NoError(c.t, err)
		config.Transport = &transport{inner, c.network, host(n)}
	}
	m, err := Join(fmt.Sprintf("gossip://%s:%d", host(c.seed), gossipPort), o)
	require.NoError(c.t, err)
	c.members[n] = m
	return m
}

// kill ends a member without a word.
func (c *cluster) kill(n int) {
	m := c.members[n]
	delete(c.members, n)
	m.kill()
}

func (m *Member) kill() {
	m.closing.Do(func() {
		m.cancel()
		m.running.Wait()
		_ = m.list.Shutdown() // it has no error to tell
	})
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, network: &network{part: map[string]int{}}, members: map[int]*Member{}, seed: 1}
	t.Cleanup(func() {
		var closing sync.WaitGroup
		for _, m := range c.members {
			closing.Go(m.kill)
		}
		closing.Wait()
	})
	return c
}

// unique reports whether these members have distinct numbers, of which each knows
// and which all others know, too.
func (c *cluster) unique(members ...*Member) bool {
	want := discovery.Snapshot{Self: -1}
	for _, m := range members {
		if number, ok := m.Number(); m.options.Kind == Backend {
			if !ok {
				return false
			}
			want.Servers = append(want.Servers, discovery.Server{Number: number, Address: m.options.Server.Address})
			want.Numbers = max(want.Numbers, number+1)
		}
	}
	slices.SortFunc(want.Servers, func(a, b discovery.Server) int { return a.Number - b.Number })
	for i, s := range want.Servers {
		if i > 0 && s.Number == want.Servers[i-1].Number {
			return false
		}
	}
	for _, m := range members {
		got, _ := m.snapshot()
		if got.Numbers != want.Numbers || !slices.Equal(got.Servers, want.Servers) {
			return false
		}
	}
	return true
}

func (c *cluster) all() (list []*Member) {
	for _, m := range c.members {
		list = append(list, m)
	}
	return list
}

// eventually waits for unique numbers, and logs how long that took.
func (c *cluster) eventually(what string, members ...*Member) {
	c.t.Helper()
	begin := time.Now()
	for !c.unique(members...) {
		if time.Since(begin) > 90*time.Second {
			for _, m := range members {
				number, _ := m.Number()
				s, _ := m.snapshot()
				c.t.Logf("%s has %d and hears of %d servers, %d numbers", m.name, number, len(s.Servers), s.Numbers)
			}
			c.t.Fatalf("in vain: %s", what)
		}
		time.Sleep(200 * time.Millisecond)
	}
	c.t.Logf("%s: all %d numbers are unique, and known to all, after %s", what, len(members), time.Since(begin).Round(10*time.Millisecond))
}

func TestFiftyMembers(t *testing.T) {
	const members = 50
	c := newCluster(t)
	for n := 1; n <= members; n++ {
		c.start(n, Backend)
	}
	c.eventually("fifty start at once", c.all()...)
	for _, m := range c.members {
		number, err := m.Wait(t.Context())
		require.NoError(t, err)
		require.Less(t, number, 2*members)
	}

	for n := 11; n <= 15; n++ {
		c.kill(n)
	}
	c.eventually("five are killed", c.all()...)
	for n := 11; n <= 15; n++ {
		c.start(n, Backend)
	}
	c.eventually("five others take their numbers", c.all()...)

	// Both parts lose sight of each other, and both get new members, with the same
	// numbers.
	before := map[*Member]int{}
	var parts [2][]*Member
	for n := range c.members {
		c.network.set(host(n), n%2)
	}
	for n, m := range c.members {
		before[m], _ = m.Number()
		parts[n%2] = append(parts[n%2], m)
	}
	for part := range 2 {
		c.eventually(fmt.Sprint("cut off, part ", part), parts[part]...)
	}
	for n := 51; n <= 56; n++ {
		c.network.set(host(n), n%2)
		if n%2 == 0 {
			c.seed = 2 // the usual one is in the other part
		}
		number, err := c.start(n, Backend).Wait(t.Context())
		require.NoError(t, err)
		t.Logf("member %d has the number %d", n, number)
		c.seed = 1
	}
	require.False(t, c.unique(c.all()...))
	for n := range c.members {
		c.network.set(host(n), 0)
	}
	c.eventually("healed", c.all()...)
	kept := 0
	for m, number := range before {
		if now, _ := m.Number(); now == number {
			kept++
		}
	}
	require.Equal(t, len(before), kept, "the older claims are kept")
}

func TestClientsHaveNumbersOfTheirOwn(t *testing.T) {
	c := newCluster(t)
	be := c.start(1, Backend)
	fe, observer := c.start(2, Frontend), c.start(3, Observer)
	updates := make(chan discovery.Snapshot, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- fe.Watch(ctx, func(s discovery.Snapshot) { updates <- s }) }()
	want := discovery.Snapshot{Servers: []discovery.Server{{Number: 0, Address: "be-1:7070"}}, Numbers: 1, Self: 0, Frontends: 1}
	for {
		s := <-updates
		if s.Self == want.Self && slices.Equal(s.Servers, want.Servers) {
			require.Equal(t, want, s)
			break
		}
	}
	_, err := observer.Wait(t.Context())
	require.Error(t, err)
	require.NoError(t, be.Close())
	require.NoError(t, be.Close())
	for len((<-updates).Servers) > 0 {
	}
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.NoError(t, fe.Close())
	require.ErrorContains(t, fe.Watch(t.Context(), func(discovery.Snapshot) {}), "has left")
}

// Members that know the same settle in one round, whatever they claimed.
func TestSettle(t *testing.T) {
	rng := rand.New(testseed.PCG(t))
	for range 500 {
		var all []claimant
		for i := range 1 + rng.IntN(20) {
			all = append(all, claimant{fmt.Sprint(i), meta{Number: rng.IntN(12) - 1, Claimed: int64(rng.IntN(10))}})
		}
		keepers, claims := settle(slices.Clone(all))
		taken := map[int]bool{}
		for number, k := range keepers {
			require.Equal(t, number, k.Number)
			taken[number] = true
			for _, c := range all {
				require.False(t, c.Number == number && older(c, k) < 0, "the oldest keeps")
			}
		}
		for _, number := range claims {
			require.False(t, taken[number])
			taken[number] = true
		}
		require.Len(t, taken, len(all))
		for i := range all {
			if number, ok := claims[all[i].name]; ok {
				all[i].Number = number
			}
		}
		_, again := settle(all)
		require.Empty(t, again)
	}
}

func TestBadTargetsAndOptions(t *testing.T) {
	for _, target := range []string{"", "gossip://", "gossip://a:1/x", "http://a:1", "gossip://u@a:1", "gossip://a:1?x=y", ":"} {
		_, err := Join(target, nil)
		require.Error(t, err, target)
	}
	for _, o := range []Options{{Kind: "x"}, {Kind: Backend}, {Server: discovery.Server{Address: "a:1"}}, {Bind: "x"}, {Bind: "1.2.3.4:x"},
		{Kind: Backend, Server: discovery.Server{Address: "a:1", Weight: -1}}, {Kind: Backend, Server: discovery.Server{Address: string(make([]byte, 512))}}} {
		_, err := Join("gossip://a:1", &o)
		require.Error(t, err)
	}
}
