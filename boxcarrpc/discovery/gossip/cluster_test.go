//go:build linux

// Only Linux has all of 127.0.0.0/8 as local addresses.
package gossip

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/boxcarrpc/discovery"
)

// Probes in progress when a member shuts down end later.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"),
		goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).handleIndirectPing.func2"))
}

// A network of addresses from 127.71.0.1 on that a test can partition. It uses sockets,
// or memory for virtual time.
type network struct {
	virtual bool
	mu      sync.Mutex
	part    map[string]int // partition by address
	inside  map[string]*inMemory
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

// find returns the transport at an address of the network in memory.
func (n *network) find(address string) *inMemory {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.inside[address]
}

var errNoRoute = errors.New("no route")

// transport returns a transport for a member.
func (n *network) transport(t testing.TB, config *memberlist.Config) memberlist.Transport {
	if n.virtual {
		self := &inMemory{network: n, self: config.BindAddr, packets: make(chan *memberlist.Packet, 1000), streams: make(chan net.Conn, 100)}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.inside[self.self] = self
		return self
	}
	sockets, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{
		BindAddrs: []string{config.BindAddr}, BindPort: config.BindPort, Logger: config.Logger,
	})
	require.NoError(t, err)
	return &parting{sockets, n, config.BindAddr}
}

// A parting transport is memberlist's own transport through a network with partitions.
type parting struct {
	*memberlist.NetTransport
	network *network
	self    string
}

func (t *parting) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	host, _, err := net.SplitHostPort(a.Addr)
	if err != nil || t.network.parted(t.self, host) {
		return time.Now(), err // lost
	}
	return t.NetTransport.WriteToAddress(b, a)
}

func (t *parting) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	host, _, err := net.SplitHostPort(a.Addr)
	if err == nil && t.network.parted(t.self, host) {
		err = errNoRoute
	}
	if err != nil {
		return nil, err
	}
	return t.NetTransport.DialAddressTimeout(a, timeout)
}

// An inMemory transport has no sockets, so that time may be virtual.
type inMemory struct {
	network *network
	self    string
	packets chan *memberlist.Packet
	streams chan net.Conn
}

func (t *inMemory) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return net.ParseIP(t.self), gossipPort, nil
}

// reach returns the transport at an address, nil if there is none or it is in another
// partition.
func (t *inMemory) reach(address string) *inMemory {
	host, _, err := net.SplitHostPort(address)
	if err != nil || t.network.parted(t.self, host) {
		return nil
	}
	return t.network.find(host)
}

func (t *inMemory) WriteTo(b []byte, address string) (time.Time, error) {
	now := time.Now()
	if to := t.reach(address); to != nil {
		from := &net.UDPAddr{IP: net.ParseIP(t.self), Port: gossipPort}
		select {
		case to.packets <- &memberlist.Packet{Buf: slices.Clone(b), From: from, Timestamp: now}:
		default: // drop, like UDP
		}
	}
	return now, nil
}

func (t *inMemory) DialTimeout(address string, _ time.Duration) (net.Conn, error) {
	to := t.reach(address)
	if to == nil {
		return nil, errNoRoute
	}
	near, far := net.Pipe()
	select {
	case to.streams <- far:
		return near, nil
	default:
		return nil, errNoRoute
	}
}

func (t *inMemory) PacketCh() <-chan *memberlist.Packet { return t.packets }
func (t *inMemory) StreamCh() <-chan net.Conn           { return t.streams }

// Shutdown closes connections that were not accepted.
func (t *inMemory) Shutdown() error {
	t.network.mu.Lock()
	defer t.network.mu.Unlock()
	if t.network.inside[t.self] == t {
		delete(t.network.inside, t.self)
	}
	for {
		select {
		case conn := <-t.streams:
			_ = conn.Close() // Close of a pipe returns no error
		default:
			return nil
		}
	}
}

// A cluster is members of a network, in this process.
type cluster struct {
	t       testing.TB
	network *network
	options Options         // default options of members
	members map[int]*Member // by index of the address
	seed    int
	number  int32
}

// gossipPort is the port on all addresses: a free one, because other runs of the test use
// the same addresses.
var gossipPort = func() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer func() { _ = l.Close() }() // no connections
	return l.Addr().(*net.TCPAddr).Port
}()

// clusters counts clusters, to give each different addresses.
var clusters atomic.Int32

func (c *cluster) host(n int) string { return fmt.Sprintf("127.%d.%d.%d", 70+c.number, n/200, 1+n%200) }

func newCluster(t testing.TB, virtual bool, options Options) *cluster {
	c := &cluster{t: t, options: options, members: map[int]*Member{}, seed: 1, number: clusters.Add(1)}
	c.network = &network{virtual: virtual, part: map[string]int{}, inside: map[string]*inMemory{}}
	t.Cleanup(c.close)
	return c
}

// aWhile is longer than any timeout of a member.
const aWhile = time.Minute

// close closes all members.
func (c *cluster) close() {
	var closing sync.WaitGroup
	for _, m := range c.members {
		closing.Go(m.kill)
	}
	closing.Wait()
	clear(c.members)
	if c.network.virtual {
		// memberlist does not wait for probes in progress, and virtual time stops when
		// the test returns.
		time.Sleep(aWhile)
	}
}

// join adds a member.
func (c *cluster) join(n int, o Options) *Member {
	o.Bind = fmt.Sprintf("%s:%d", c.host(n), gossipPort)
	if o.Kind == Backend {
		o.Server.Address = fmt.Sprintf("be-%d:7070", n)
	}
	configure := o.Configure
	o.Configure = func(config *memberlist.Config) {
		if configure != nil {
			configure(config)
		}
		config.Transport = c.network.transport(c.t, config)
	}
	m, err := Join(fmt.Sprintf("gossip://%s:%d", c.host(c.seed), gossipPort), &o)
	require.NoError(c.t, err)
	c.members[n] = m
	return m
}

// start adds a member with the default options.
func (c *cluster) start(n int, kind Kind) *Member {
	o := c.options
	o.Kind = kind
	return c.join(n, o)
}

// kill stops a member without leaving the cluster.
func (c *cluster) kill(n int) {
	m := c.members[n]
	delete(c.members, n)
	m.kill()
}

func (m *Member) kill() {
	m.closing.Do(func() {
		m.cancel()
		m.running.Wait()
		_ = m.list.Shutdown() // returns no error
	})
}

// unique reports whether these members have distinct numbers that all of them know.
func unique(members []*Member) bool {
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

// says returns a member's metadata.
func (m *Member) says() meta {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.own
}

// about returns a member's view of another member, or of itself.
func (m *Member) about(other *Member) (said meta, known bool) {
	if m == other {
		return m.says(), true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	said, known = m.mu.others[other.name]
	return said, known
}

// eventually waits for unique numbers and logs the time. It fails after the limit.
func (c *cluster) eventually(what string, within time.Duration, members []*Member) {
	c.t.Helper()
	begin := time.Now()
	for !unique(members) {
		if time.Since(begin) > within {
			for _, m := range members {
				for _, other := range members {
					if said, known := m.about(other); said != other.says() {
						c.t.Logf("%s has %+v, and %s knows %+v, %v", other.name, other.says(), m.name, said, known)
					}
				}
			}
			c.t.Fatalf("timeout after %s: %s", within, what)
		}
		time.Sleep(200 * time.Millisecond)
	}
	c.t.Logf("%s: all %d numbers are unique and known to all after %s", what, len(members), time.Since(begin).Round(100*time.Millisecond))
}
