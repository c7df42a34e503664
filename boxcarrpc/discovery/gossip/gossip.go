package gossip

import (
	"cmp"
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

// pushPullInterval is the interval of full state exchanges between two members, a few
// hundred bytes per member. They deliver state that gossip has missed. Above 32 members
// memberlist uses a longer interval. With 10 s, 50 members that started together needed
// up to 30 s until all knew all numbers; with 3 s, 10 s.
const pushPullInterval = 3 * time.Second

// leaveTimeout is how long a leaving member waits until others know.
const leaveTimeout = 2 * time.Second

// A Member is this process in the cluster, and a source of the cluster's backends.
type Member struct {
	options Options
	name    string
	list    *memberlist.Memberlist
	address string        // gossip address
	gossip  time.Duration // memberlist's gossip interval

	cancel  context.CancelFunc
	ctx     context.Context
	running sync.WaitGroup
	closing sync.Once
	wake    chan struct{} // wakes claim after a change

	mu struct {
		sync.Mutex
		own     meta
		claimed time.Time         // when own.Number was claimed, with the monotonic clock
		others  map[string]meta   // by name
		known   map[string]string // addresses by name, also of members that have left
		seeds   []string
		changed chan struct{} // closed with the next change
	}
}

// meta is the metadata of a member.
type meta struct {
	Kind    Kind    `json:"kind"`
	Number  int     `json:"number"`  // -1 if it has none
	Claimed int64   `json:"claimed"` // time of the claim on the member's clock, Unix nanoseconds
	Settled bool    `json:"settled"` // it has held the number for settleAfter
	Address string  `json:"address,omitempty"`
	Weight  float64 `json:"weight,omitempty"`
	Zone    string  `json:"zone,omitempty"`
}

// Join joins the cluster of a target, which has addresses of some of its members:
//
//	gossip://HOST:PORT[,HOST:PORT...][?bind=HOST:PORT][&key-file=FILE]
//
// bind and key-file override Options.Bind and Options.KeyFile. Join does not wait for
// other members; unreachable ones are retried in the background. opts may be nil.
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
	m := &Member{options: o, name: o.Server.Address + "#" + rand.Text()[:12], wake: make(chan struct{}, 1)}
	m.mu.own = meta{Kind: o.Kind, Number: -1, Claimed: time.Now().UnixNano(), Address: o.Server.Address, Weight: o.Server.Weight, Zone: cmp.Or(o.Server.Zone, o.Zone)}
	m.mu.others, m.mu.known, m.mu.seeds = map[string]meta{}, map[string]string{}, seeds
	m.mu.changed = make(chan struct{})
	if len(m.encoded()) > memberlist.MetaMaxSize {
		return nil, fmt.Errorf("gossip: server address of %d bytes: the metadata must have at most %d", len(o.Server.Address), memberlist.MetaMaxSize)
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

// Address returns the member's gossip address, which other members can join.
func (m *Member) Address() string { return m.address }

// Close leaves the cluster and releases the number. It is idempotent.
func (m *Member) Close() (err error) {
	m.closing.Do(func() {
		m.cancel()
		m.running.Wait()
		err = errors.Join(m.list.Leave(leaveTimeout), m.list.Shutdown())
	})
	return err
}

// encoded returns the member's metadata. m.mu is held, or m is not shared yet.
func (m *Member) encoded() []byte {
	text, err := json.Marshal(m.mu.own)
	if err != nil {
		panic(err) // check validates the weight
	}
	return text
}

// delegate provides the metadata to memberlist.
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

// events receives memberlist's events, which come with memberlist's lock held.
type events struct{ *Member }

func (e events) NotifyJoin(n *memberlist.Node)   { e.update(n, false) }
func (e events) NotifyUpdate(n *memberlist.Node) { e.update(n, false) }
func (e events) NotifyLeave(n *memberlist.Node)  { e.update(n, true) }

func (m *Member) update(n *memberlist.Node, gone bool) {
	if n.Name == m.name {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if gone {
		delete(m.mu.others, n.Name)
	} else {
		m.mu.others[n.Name] = m.decode(n)
		m.remember(n)
	}
	m.change()
}

// decode decodes a member's metadata. A member with invalid metadata or an invalid number
// counts as an observer.
func (m *Member) decode(n *memberlist.Node) (decoded meta) {
	if json.Unmarshal(n.Meta, &decoded) != nil || decoded.Number < -1 {
		return meta{Kind: Observer}
	}
	if decoded.Number > discovery.MaxNumber {
		m.options.Logger.Warn("ignoring a member", "error", &discovery.NumberError{
			Source: "gossip member " + n.Name + " at " + n.Address(), Number: decoded.Number, Limit: discovery.MaxNumber + 1,
		})
		return meta{Kind: Observer}
	}
	if err := discovery.CheckZone(decoded.Zone); err != nil {
		m.options.Logger.Warn("ignoring the zone of a member", "member", n.Name, "error", err)
		decoded.Zone = ""
	}
	return decoded
}

// change wakes the goroutines that wait for changes. m.mu is held.
func (m *Member) change() {
	close(m.mu.changed)
	m.mu.changed = make(chan struct{})
	select {
	case m.wake <- struct{}{}:
	default:
	}
}
