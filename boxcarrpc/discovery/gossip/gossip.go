package gossip

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"docstore/boxcarrpc/discovery"
)

// pushPullInterval: news that is told by chance misses somebody now and then, who has
// it when both compare all that they know: of a few hundred bytes a member. Above 32
// members they do that more rarely. Every 10 s, 50 members that started together needed
// up to 30 s for numbers that all know, and with this 10 s.
const pushPullInterval = 3 * time.Second

// leaveTimeout is how long a member that leaves waits for others to hear of it.
const leaveTimeout = 2 * time.Second

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
		claimed time.Time         // when it claimed its number, with the monotonic clock
		others  map[string]meta   // by their names
		known   map[string]string // addresses by names, also of members that have gone
		seeds   []string
		changed chan struct{} // closed with the next change
	}
}

// meta is what a member says of itself.
type meta struct {
	Kind    Kind    `json:"kind"`
	Number  int     `json:"number"`  // -1 if it has none yet
	Claimed int64   `json:"claimed"` // when, by the member's clock, in nanoseconds since 1970
	Settled bool    `json:"settled"` // it has held the number for settleAfter
	Address string  `json:"address,omitempty"`
	Weight  float64 `json:"weight,omitempty"`
}

// Join enters the cluster of a target of the form
//
//	gossip://HOST:PORT[,HOST:PORT...][?bind=HOST:PORT][&key-file=FILE]
//
// that names some of its members; bind and key-file go before Options.Bind and KeyFile.
// It need not reach any, nor need there be one: who comes first waits to be found. opts
// may be nil.
func Join(target string, opts *Options) (*Member, error) {
	o, seeds, err := check(target, opts)
	if err != nil {
		return nil, err
	}
	ring := &memberlist.Keyring{}
	if o.KeyFile != "" {
		keys, err := readKeys(o.KeyFile)
		if err == nil {
			err = rekey(ring, keys)
		}
		if err != nil {
			return nil, err
		}
	}
	m := &Member{options: o, name: o.Server.Address + "#" + rand.Text()[:12], news: make(chan struct{}, 1)}
	m.mu.own = meta{Kind: o.Kind, Number: -1, Claimed: time.Now().UnixNano(), Address: o.Server.Address, Weight: o.Server.Weight}
	m.mu.others, m.mu.known, m.mu.seeds = map[string]meta{}, map[string]string{}, seeds
	m.mu.changed = make(chan struct{})
	if len(m.encoded()) > memberlist.MetaMaxSize {
		return nil, fmt.Errorf("gossip: an address of %d bytes is too long to be told", len(o.Server.Address))
	}
	config := memberlist.DefaultLANConfig()
	config.Name = m.name
	config.Delegate, config.Events = delegate{m}, events{m}
	config.Logger = log.New(io.Discard, "", 0)
	config.Keyring, config.PushPullInterval = ring, pushPullInterval
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
	if o.KeyFile != "" {
		m.running.Go(func() { m.followKeys(ring) })
	}
	if o.Kind != Observer {
		m.running.Go(m.claim)
	}
	return m, nil
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
	if !gone {
		said = m.decode(n)
	}
	if gone {
		delete(m.mu.others, n.Name)
	} else {
		m.mu.others[n.Name] = said
		m.remember(n)
	}
	m.change()
}

// decode reads what a member says of itself. A member with another format, or with a
// number that no server may have, is an observer.
func (m *Member) decode(n *memberlist.Node) (said meta) {
	if json.Unmarshal(n.Meta, &said) != nil || said.Number < -1 {
		return meta{Kind: Observer}
	}
	if said.Number > discovery.MaxNumber {
		m.options.Logger.Warn("a member is left out", "error", &discovery.NumberError{
			Source: "gossip member " + n.Name + " at " + n.Address(), Number: said.Number, Limit: discovery.MaxNumber + 1,
		})
		return meta{Kind: Observer}
	}
	return said
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
