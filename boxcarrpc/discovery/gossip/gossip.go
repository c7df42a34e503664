package gossip

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"docstore/boxcarrpc/discovery"
)

// Defaults of Options.
const (
	DefaultRejoinInterval = 10 * time.Second
	DefaultPort           = 7946
)

const (
	// How long a member that leaves waits for others to hear of it.
	leaveTimeout = 2 * time.Second
	// How many members are remembered after they have gone, to be tried again.
	maxRemembered = 1000
)

// A Kind is what a member is to the others.
type Kind string

// The kinds. Backends and frontends have numbers, each of their own.
const (
	Observer Kind = "observer"
	Backend  Kind = "backend"
	Frontend Kind = "frontend"
)

// Options are those of a Member. The zero value of each field, and a nil *Options,
// mean the default.
type Options struct {
	// Kind is what the member is. The default is Observer.
	Kind Kind
	// Server is what a Backend tells of itself; its number is not looked at.
	Server discovery.Server
	// Bind is the host and port to gossip on, UDP and TCP; others must reach this
	// member there. Port 0 takes any. The default is the address from which the
	// first seed is reached, with port 7946, or any for an Observer.
	Bind string
	// RejoinInterval is how often a member that is not heard of is tried. The
	// default is 10 s.
	RejoinInterval time.Duration
	// Configure changes memberlist's own settings, which are those for a local
	// network.
	Configure func(*memberlist.Config)
	// Logger gets numbers that are gained and lost. The default discards it.
	Logger *slog.Logger
}

// A Member is this process in the cluster, and the source of its backends.
type Member struct {
	options Options
	name    string
	list    *memberlist.Memberlist
	address string        // where it gossips
	gossip  time.Duration // memberlist's interval

	cancel  context.CancelFunc
	ctx     context.Context
	running sync.WaitGroup
	closing sync.Once
	news    chan struct{} // something is to be considered

	mu struct {
		sync.Mutex
		own     meta
		others  map[string]meta   // by their names
		known   map[string]string // addresses by names, also of members that have gone
		seeds   []string
		changed chan struct{} // closed with the next change
	}
}

// meta is what a member says of itself.
type meta struct {
	Kind    Kind    `json:"kind"`
	Number  int     `json:"number"` // -1 if it has none yet
	Claimed int64   `json:"claimed"`
	Address string  `json:"address,omitempty"`
	Weight  float64 `json:"weight,omitempty"`
}

// Join enters the cluster of a target of the form
//
//	gossip://HOST:PORT[,HOST:PORT...][?bind=HOST:PORT]
//
// that names some of its members; bind goes before Options.Bind. It need not reach any, nor need there be one: who
// comes first waits to be found. opts may be nil.
func Join(target string, opts *Options) (*Member, error) {
	o, seeds, err := check(target, opts)
	if err != nil {
		return nil, err
	}
	m := &Member{options: o, name: o.Server.Address + "#" + rand.Text()[:12], news: make(chan struct{}, 1)}
	m.mu.own = meta{o.Kind, -1, time.Now().UnixNano(), o.Server.Address, o.Server.Weight}
	m.mu.others, m.mu.known, m.mu.seeds = map[string]meta{}, map[string]string{}, seeds
	m.mu.changed = make(chan struct{})
	if len(m.encoded()) > memberlist.MetaMaxSize {
		return nil, fmt.Errorf("gossip: an address of %d bytes is too long to be told", len(o.Server.Address))
	}
	config := memberlist.DefaultLANConfig()
	config.Name = m.name
	config.Delegate, config.Events = delegate{m}, events{m}
	config.Logger = log.New(io.Discard, "", 0)
	host, port, err := bindTo(o, seeds[0])
	if err != nil {
		return nil, err
	}
	config.BindAddr, config.BindPort, config.AdvertisePort = host, port, port
	if o.Configure != nil {
		o.Configure(config)
	}
	m.gossip = config.GossipInterval
	if m.list, err = memberlist.Create(config); err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	m.address = m.list.LocalNode().Address()
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.running.Go(m.reach)
	if o.Kind != Observer {
		m.running.Go(m.claim)
	}
	return m, nil
}

func check(target string, opts *Options) (o Options, seeds []string, err error) {
	if opts != nil {
		o = *opts
	}
	if o.Kind == "" {
		o.Kind = Observer
	}
	if o.RejoinInterval <= 0 {
		o.RejoinInterval = DefaultRejoinInterval
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if seeds, o.Bind, err = parse(target, o.Bind); err != nil {
		return o, nil, err
	}
	switch {
	case o.Kind != Observer && o.Kind != Backend && o.Kind != Frontend:
		return o, nil, fmt.Errorf("gossip: there is no kind %q", o.Kind)
	case (o.Kind == Backend) != (o.Server.Address != ""):
		return o, nil, errors.New("gossip: a backend, and nobody else, has the address of a server")
	case !(o.Server.Weight >= 0 && o.Server.Weight < 1e300):
		return o, nil, fmt.Errorf("gossip: a weight of %v: it must be over 0", o.Server.Weight)
	}
	return o, seeds, nil
}

func parse(target, bind string) (seeds []string, to string, err error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, "", fmt.Errorf("gossip: %w", err)
	}
	query := u.Query()
	if query.Has("bind") {
		bind = query.Get("bind")
		query.Del("bind")
	}
	if u.Scheme != "gossip" || u.Host == "" || strings.Trim(u.Path, "/") != "" || len(query) > 0 || u.User != nil || u.Fragment != "" {
		return nil, "", fmt.Errorf("gossip: %s: want gossip://HOST:PORT[,HOST:PORT...][?bind=HOST:PORT]", target)
	}
	return strings.Split(u.Host, ","), bind, nil
}

// Check reports what is wrong with a target.
func Check(target string) error {
	_, _, err := parse(target, "")
	return err
}

// bindTo is the address to bind.
func bindTo(o Options, seed string) (host string, port int, err error) {
	bind := o.Bind
	if bind == "" {
		// No packet is sent by this.
		probe, err := net.Dial("udp", seed)
		if err != nil {
			return "", 0, fmt.Errorf("gossip: say where to bind: %w", err)
		}
		host, _, _ := net.SplitHostPort(probe.LocalAddr().String())
		_ = probe.Close() // nothing was written
		if o.Kind == Observer {
			return host, 0, nil
		}
		return host, DefaultPort, nil
	}
	host, text, err := net.SplitHostPort(bind)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil {
		return "", 0, fmt.Errorf("gossip: the address to bind, %s: %w", bind, err)
	}
	return host, port, nil
}

// Address is where the member gossips: what others may join.
func (m *Member) Address() string { return m.address }

// Close leaves the cluster: others hear of it, and the number is free. It is
// idempotent.
func (m *Member) Close() (err error) {
	m.closing.Do(func() {
		m.cancel()
		m.running.Wait()
		err = errors.Join(m.list.Leave(leaveTimeout), m.list.Shutdown())
	})
	return err
}

// reach joins the seeds, and later members that are not heard of.
func (m *Member) reach() {
	for first := true; ; first = false {
		for _, address := range m.missing() {
			if m.ctx.Err() != nil {
				return
			}
			if _, err := m.list.Join([]string{address}); err != nil {
				m.options.Logger.Debug("a member cannot be reached", "address", address, "error", err)
			} else if first {
				break
			}
			if !first {
				break // one in each interval
			}
		}
		timer := time.NewTimer(m.options.RejoinInterval/2 + mathrand.N(m.options.RejoinInterval))
		select {
		case <-timer.C:
		case <-m.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// missing lists the addresses at which nobody is heard of, in random order.
func (m *Member) missing() (list []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	heard := map[string]bool{m.address: true}
	for name := range m.mu.others {
		heard[m.mu.known[name]] = true
	}
	for _, address := range m.mu.seeds {
		if !heard[address] {
			heard[address] = true
			list = append(list, address)
		}
	}
	for _, address := range m.mu.known {
		if !heard[address] {
			heard[address] = true
			list = append(list, address)
		}
	}
	mathrand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// encoded is the member's metadata. m.mu is held, or nobody else knows the member.
func (m *Member) encoded() []byte {
	text, err := json.Marshal(m.mu.own)
	if err != nil {
		panic(err) // check has looked at the weight
	}
	return text
}

// delegate tells memberlist the metadata.
type delegate struct{ *Member }

func (d delegate) NodeMeta(int) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.encoded()
}

func (delegate) NotifyMsg([]byte)                {}
func (delegate) GetBroadcasts(int, int) [][]byte { return nil }
func (delegate) LocalState(bool) []byte          { return nil }
func (delegate) MergeRemoteState([]byte, bool)   {}

// events takes what memberlist hears, which holds a lock meanwhile.
type events struct{ *Member }

func (e events) NotifyJoin(n *memberlist.Node)   { e.heard(n, false) }
func (e events) NotifyUpdate(n *memberlist.Node) { e.heard(n, false) }
func (e events) NotifyLeave(n *memberlist.Node)  { e.heard(n, true) }

func (m *Member) heard(n *memberlist.Node, gone bool) {
	if n.Name == m.name {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var said meta
	if !gone && (json.Unmarshal(n.Meta, &said) != nil || said.Number < -1 || said.Number > discovery.MaxNumber) {
		said = meta{Kind: Observer} // another version's
	}
	if gone {
		delete(m.mu.others, n.Name)
	} else {
		m.mu.others[n.Name] = said
		m.remember(n)
	}
	m.change()
}

// remember keeps the address of a member for when it is not heard of any more.
func (m *Member) remember(n *memberlist.Node) {
	for name := range m.mu.known {
		if len(m.mu.known) < maxRemembered+len(m.mu.others) {
			break
		}
		if _, here := m.mu.others[name]; !here {
			delete(m.mu.known, name)
		}
	}
	m.mu.known[n.Name] = n.Address()
}

// change wakes who waits for changes. m.mu is held.
func (m *Member) change() {
	close(m.mu.changed)
	m.mu.changed = make(chan struct{})
	select {
	case m.news <- struct{}{}:
	default:
	}
}
