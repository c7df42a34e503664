package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"docstore/internal/simulate/chance"
)

// Times of a packet, before chance, and of retransmission.
const (
	loopback    = 5 * time.Microsecond
	withinZone  = 50 * time.Microsecond
	betweenZone = 500 * time.Microsecond
	// Waits before a packet is sent again: they double from the first to the last.
	firstRetransmission = 200 * time.Millisecond
	lastRetransmission  = 2 * time.Minute
	// firstConnect is the wait before the first packet of a connection is sent again. It
	// doubles, and the kernel gives up after connectTimeout.
	firstConnect   = time.Second
	connectTimeout = 127 * time.Second
	// An idle connection is probed at probeInterval, and fails without an answer after
	// keepAlive; one that has sent bytes after giveUp.
	probeInterval = 15 * time.Second
	keepAlive     = 150 * time.Second
	giveUp        = 924 * time.Second
)

const (
	window  = 256 << 10 // bytes
	backlog = 128       // connections that were not accepted yet
	// Ports of clients.
	firstPort, lastPort = 32768, 60999
)

// Network is a set of hosts.
type Network struct {
	chance *chance.Chance

	mu struct {
		sync.Mutex
		hosts map[string]*Host
		cuts  map[int]cut
		last  int     // number of cuts
		links []*link // oldest first: the order of events follows from it
	}
}

// Hosts selects hosts.
type Hosts func(*Host) bool

// cut loses the packets from some hosts to others.
type cut struct {
	from, to Hosts
	data     bool // connections are established
}

// New returns a network without hosts.
func New(c *chance.Chance) *Network {
	n := &Network{chance: c}
	n.mu.hosts, n.mu.cuts = map[string]*Host{}, map[int]cut{}
	return n
}

// Zone selects the hosts of a zone.
func Zone(name string) Hosts { return func(h *Host) bool { return h.zone == name } }

// Others selects all hosts but those.
func Others(these Hosts) Hosts { return func(h *Host) bool { return !these(h) } }

// Is selects the host.
func (h *Host) Is(other *Host) bool { return h == other }

// Cut loses all packets from some hosts to others, in this direction, until heal is called.
func (n *Network) Cut(from, to Hosts) (heal func()) { return n.cut(cut{from: from, to: to}) }

func (n *Network) cut(c cut) (heal func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.last++
	number := n.mu.last
	n.mu.cuts[number] = c
	n.recheck()
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.mu.cuts, number)
		n.recheck()
	}
}

// recheck tells all connections whether their packets are lost.
func (n *Network) recheck() {
	for _, k := range n.mu.links {
		k.setLost(n.lost(k))
	}
}

func (n *Network) lost(k *link) (lost [2]bool) {
	for i, c := range k.ends {
		lost[i] = n.isCut(c.process.host, c.peer.process.host, false)
	}
	return lost
}

func (n *Network) isCut(from, to *Host, connecting bool) bool {
	for _, c := range n.mu.cuts {
		if c.from(from) && c.to(to) && (!connecting || !c.data) {
			return true
		}
	}
	return false
}

// latency draws the time of a packet.
func (n *Network) latency(key string, from, to *Host) time.Duration {
	base := withinZone
	switch {
	case from == to:
		base = loopback
	case from.zone != to.zone:
		base = betweenZone
	}
	draw := n.chance.Next(key)
	return draw.Duration(base, 4*base) + from.delay() + to.delay()
}

// Host is a machine.
type Host struct {
	network  *Network
	ip, zone string

	mu struct {
		sync.Mutex
		listeners map[int]*listener
		port      int           // of the last client
		slow      time.Duration // of each packet
		booted    bool
		vanished  []*conn // of earlier incarnations; their peers do not know
	}
}

// Host returns the host at an IP address, which is made at the first call.
func (n *Network) Host(ip, zone string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.mu.hosts[ip]
	if h == nil {
		h = &Host{network: n, ip: ip, zone: zone}
		h.mu.listeners, h.mu.port = map[int]*listener{}, firstPort
		n.mu.hosts[ip] = h
	}
	return h
}

// String returns the address.
func (h *Host) String() string { return h.ip }

func (h *Host) delay() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.slow
}

// Slow delays each packet to and from the host, until end is called.
func (h *Host) Slow(delay time.Duration) (end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.slow += delay
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.mu.slow -= delay
	}
}

// Isolate loses all packets to and from the host, except its own, until heal is called.
func (h *Host) Isolate() (heal func()) {
	in, out := h.network.Cut(Others(h.Is), h.Is), h.network.Cut(h.Is, Others(h.Is))
	return func() { in(); out() }
}

// Silence makes a host accept connections, receive nothing, and send nothing, until end is called.
func (h *Host) Silence() (end func()) {
	in := h.network.cut(cut{from: Others(h.Is), to: h.Is, data: true})
	out := h.network.cut(cut{from: h.Is, to: Others(h.Is), data: true})
	return func() { in(); out() }
}

// Process is one incarnation of the programs on a host.
type Process struct {
	host  *Host
	ended chan struct{}

	mu struct {
		sync.Mutex
		dead      bool
		conns     []*conn
		listeners []*listener
	}
}

// Boot returns another incarnation.
func (h *Host) Boot() *Process {
	p := &Process{host: h, ended: make(chan struct{})}
	h.mu.Lock()
	h.mu.booted = true
	vanished := h.mu.vanished
	h.mu.vanished = nil
	h.mu.Unlock()
	for _, c := range vanished {
		c.turnOn()
	}
	return p
}

// Kill ends the process. The kernel closes its listeners and connections.
func (p *Process) Kill() {
	conns, listeners := p.end()
	for _, l := range listeners {
		_ = l.Close() // no error
	}
	for _, c := range conns {
		_ = c.Close() // no error
	}
}

// Vanish ends the process without a packet: power is lost.
func (p *Process) Vanish() {
	conns, listeners := p.end()
	for _, c := range conns {
		c.turnOff()
	}
	p.host.mu.Lock()
	p.host.mu.booted = false
	p.host.mu.vanished = append(p.host.mu.vanished, conns...)
	p.host.mu.Unlock()
	for _, l := range listeners {
		_ = l.Close() // no error
	}
}

// Reset resets all connections of the process at both ends. The process continues.
func (p *Process) Reset() {
	p.mu.Lock()
	conns := slices.Clone(p.mu.conns)
	p.mu.Unlock()
	for _, c := range conns {
		c.link.fail(syscall.ECONNRESET)
	}
}

// OpenConns returns the remote addresses of the connections that the process has not closed.
func (p *Process) OpenConns() (remote []string) {
	p.mu.Lock()
	conns := slices.Clone(p.mu.conns)
	p.mu.Unlock()
	for _, c := range conns {
		c.link.update(func() {
			if !errors.Is(c.readErr, net.ErrClosed) {
				remote = append(remote, c.remote.String())
			}
		})
	}
	return remote
}

// end marks the process as ended, and returns its connections and listeners.
func (p *Process) end() ([]*conn, []*listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mu.dead {
		p.mu.dead = true
		close(p.ended)
	}
	listeners := p.mu.listeners
	p.mu.listeners = nil
	return slices.Clone(p.mu.conns), listeners
}

func (p *Process) add(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mu.dead {
		p.mu.conns = append(p.mu.conns, c)
	}
	return !p.mu.dead
}

// listener is an open listener.
type listener struct {
	process *Process
	address *net.TCPAddr
	queue   chan *conn
	closed  chan struct{}
	once    sync.Once
}

// Listen opens a listener at HOST:PORT. Only the port is significant.
func (p *Process) Listen(address string) (net.Listener, error) {
	fail := func(err error) (net.Listener, error) {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: err}
	}
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return fail(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return fail(err)
	}
	h := p.host
	l := &listener{process: p, address: &net.TCPAddr{IP: net.ParseIP(h.ip), Port: port}, queue: make(chan *conn, backlog), closed: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.listeners[port] != nil {
		return fail(os.NewSyscallError("bind", syscall.EADDRINUSE))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.dead {
		return fail(net.ErrClosed)
	}
	p.mu.listeners = append(p.mu.listeners, l)
	h.mu.listeners[port] = l
	return l, nil
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
	default:
		select {
		case c := <-l.queue:
			return c, nil
		case <-l.closed:
		}
	}
	return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.address, Err: net.ErrClosed}
}

// Close implements net.Listener. Connections that were not accepted are reset.
func (l *listener) Close() error {
	l.once.Do(func() {
		h := l.process.host
		h.mu.Lock()
		delete(h.mu.listeners, l.address.Port)
		close(l.closed)
		h.mu.Unlock()
		for {
			select {
			case c := <-l.queue:
				c.reset()
			default:
				return
			}
		}
	})
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.address }

// Dial connects to HOST:PORT. HOST is the IP address of a host, or a loopback address.
func (p *Process) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := p.dial(ctx, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: textAddr(address), Err: err}
	}
	return c, nil
}

type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

func (p *Process) dial(ctx context.Context, address string) (*conn, error) {
	ip, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	n, from := p.host.network, p.host
	n.mu.Lock()
	to := n.mu.hosts[ip]
	n.mu.Unlock()
	if parsed := net.ParseIP(ip); parsed != nil && parsed.IsLoopback() || ip == "localhost" {
		to = from
	}
	key := fmt.Sprint("connect ", from.ip, " ", address)
	start, wait := time.Now(), firstConnect
	for time.Since(start) < connectTimeout {
		again := time.Now().Add(wait)
		wait *= 2
		if to != nil && n.connects(from, to) {
			if err := p.sleep(ctx, n.latency(key, from, to)+n.latency(key, to, from)); err != nil {
				return nil, err
			}
			if c, err := p.connect(to, port, key); c != nil || err != nil {
				return c, err
			}
		}
		if err := p.sleep(ctx, time.Until(again)); err != nil {
			return nil, err
		}
	}
	return nil, os.NewSyscallError("connect", syscall.ETIMEDOUT)
}

// connects reports whether the packets that make a connection pass.
func (n *Network) connects(from, to *Host) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.isCut(from, to, true) && !n.isCut(to, from, true)
}

// sleep waits for a part of a connection attempt. The attempt fails with its context, and when
// the process ends.
func (p *Process) sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-p.ended:
		return os.NewSyscallError("connect", syscall.ENETDOWN)
	case <-ctx.Done():
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return os.ErrDeadlineExceeded
	}
	return ctx.Err()
}

// connect makes a connection to the listener of a port. It returns nil if nothing answers.
func (p *Process) connect(to *Host, port int, key string) (*conn, error) {
	from := p.host
	to.mu.Lock()
	l, up := to.mu.listeners[port], to.mu.booted
	to.mu.Unlock()
	switch {
	case !up:
		return nil, nil
	case l == nil:
		return nil, os.NewSyscallError("connect", syscall.ECONNREFUSED)
	}
	from.mu.Lock()
	if from.mu.port++; from.mu.port > lastPort {
		from.mu.port = firstPort
	}
	local := &net.TCPAddr{IP: net.ParseIP(from.ip), Port: from.mu.port}
	from.mu.Unlock()
	k := newLink(p, l.process, local, l.address, key)
	near, far := k.ends[0], k.ends[1]
	if !p.add(near) {
		return nil, os.NewSyscallError("connect", syscall.ENETDOWN)
	}
	n := from.network
	n.mu.Lock()
	n.mu.links = append(n.mu.links, k)
	k.setLost(n.lost(k))
	n.mu.Unlock()
	if !l.process.add(far) || !l.put(far) {
		k.fail(syscall.ECONNRESET)
		return nil, nil
	}
	return near, nil
}

// put adds a connection to those that were not accepted yet.
func (l *listener) put(c *conn) bool {
	l.process.host.mu.Lock()
	defer l.process.host.mu.Unlock()
	select {
	case <-l.closed:
		return false
	default:
	}
	select {
	case l.queue <- c:
		return true
	default: // the backlog is full
		return false
	}
}
