package simulate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"docstore/boxcarrpc/subset"
	"docstore/internal/ctxtime"
	"docstore/internal/simulate/chance"
	"docstore/internal/simulate/network"
)

// Pools is the configuration of servers and front ends that exchange calls and streams over
// boxcarrpc, without documents: see the package comment.
type Pools struct {
	Frontends int
	Size      int    // the slots of a pool
	Subset    int    `json:",omitempty"` // the servers of a pool; 0: all
	Algorithm string `json:",omitempty"` // of the subset
	Discovery string // of discoveries
	Slots     int    `json:",omitempty"` // limit of each server; 0: the default
	InFlight  int    `json:",omitempty"` // limit of requests in flight of each server; 0: the default
	Handler   time.Duration
	Hedge     time.Duration `json:",omitempty"` // 0: calls are not hedged
	MaxWait   time.Duration `json:",omitempty"`
	Errors    float64       `json:",omitempty"` // share of the requests that fail in their handlers
	Watches   int           `json:",omitempty"` // streams of each front end
	Overload  bool          `json:",omitempty"` // front ends send more than their slots can carry
}

// The ways in which pools learn of their servers.
const (
	staticDiscovery   = "static"
	changingDiscovery = "changing"
	etcdDiscovery     = "etcd"
)

const (
	// maxEtcdServers bounds the connections to etcd, which cost much of a seed's processor time.
	maxEtcdServers = 6
	// maxPoolCalls bounds the calls of a run.
	maxPoolCalls = 12_000
)

// DrawPools returns the configuration of servers and front ends of a seed.
func DrawPools(seed uint64) Config {
	d := chance.New(seed).Next("pools")
	theme := poolThemes[d.Int(len(poolThemes))]
	c := Config{
		Seed: seed, Servers: pick(&d, theme.servers), Zones: max(1, d.Int(4)),
		Work: d.Duration(30*time.Second, 6*time.Minute), Rate: pick(&d, []float64{0, 1, 10, 50}),
	}
	p := &Pools{
		Frontends: d.Between(1, 6), Size: pick(&d, []int{4, 16, 64}), Discovery: pick(&d, theme.discoveries),
		Handler: pick(&d, []time.Duration{time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond}),
		Errors:  pick(&d, []float64{0, 0, 0.02, 0.2}),
	}
	c.Pools = p
	if p.Discovery == etcdDiscovery {
		c.Servers, p.Frontends = min(c.Servers, maxEtcdServers), min(p.Frontends, 3)
	}
	if d.Bool(0.35) {
		p.Subset, p.Algorithm = d.Between(1, 5), pick(&d, subset.Names())
	}
	if d.Bool(0.35) { // a third more than the pools need
		p.Slots = max(2, (4*p.Frontends*p.Size/3+c.Servers)/c.Servers)
	}
	if d.Bool(0.5) {
		p.Hedge = d.Duration(p.Handler, 4*p.Handler)
	}
	if d.Bool(0.5) {
		p.Watches = d.Between(1, 3)
	}
	if d.Bool(0.3) {
		p.InFlight = 8 * d.Between(1, 8)
	}
	if d.Bool(0.3) {
		c.Memory = 2 << 20
	}
	ample := float64(p.Size) / 8 / p.Handler.Seconds()
	if c.Rate = min(c.Rate, ample, maxPoolCalls/float64(p.Frontends)/c.Work.Seconds()); d.Bool(0.2) {
		p.Overload, c.Rate, p.Handler = true, max(c.Rate, 10), 200*time.Millisecond
		p.Size = min(p.Size, 4)
		p.MaxWait = d.Duration(0, 2*time.Second)
	}
	c.Faults = drawPoolFaults(&d, c, theme.kinds)
	return c
}

// pick returns one of several values.
func pick[T any](d *chance.Draw, of []T) T { return of[d.Int(len(of))] }

// poolWorld is a network of servers and front ends.
type poolWorld struct {
	Config
	chance    *chance.Chance
	log       *eventLog
	network   *network.Network
	backends  []*backend
	frontends []*frontend
	calls     *callAccount
	source    *changingSource
	etcd      *etcdHost // nil: discovery is another one

	start   time.Time
	alive   context.Context //nolint:containedctx // the lifetime of the world
	end     context.CancelFunc
	running sync.WaitGroup // processes
	asking  sync.WaitGroup // calls and streams
	faults  sync.WaitGroup // that are active

	mu struct {
		sync.Mutex
		partitions int // of zones
		changed    time.Time
	}
}

// runPools runs a configuration of servers and front ends.
func runPools(c Config) (*Report, error) {
	w := &poolWorld{Config: c, chance: chance.New(c.Seed), log: newEventLog()}
	w.alive, w.end = context.WithCancel(context.Background())
	w.network = network.New(w.chance.Sub("network"))
	w.calls = newCallAccount(w.log)
	w.log.add("world", "%v", c)
	if err := w.open(); err != nil {
		return nil, err
	}
	w.start = time.Now()
	asking, quiet := context.WithCancel(context.Background())
	for _, f := range w.frontends {
		f.ask(asking)
	}
	w.running.Go(func() {
		for ctxtime.Sleep(w.alive, monitorPause) {
			for _, f := range w.frontends {
				f.monitor()
			}
			w.checkNumbers()
		}
	})
	runFaults(c.Faults, w.start, w.log, &w.faults, w.begin)
	time.Sleep(time.Until(w.start.Add(c.Work)))
	w.faults.Wait()
	w.log.add("world", "all faults have ended")
	w.settle()
	w.steady()
	quiet()
	w.asking.Wait()
	w.drained()
	w.close()
	return &Report{Config: c, Violations: w.calls.violations(), Log: w.log.text(), Virtual: time.Since(w.start), Answers: w.calls.answers(), Entries: w.calls.count()}, nil
}

// open starts everything.
func (w *poolWorld) open() error {
	if w.Pools.Discovery == etcdDiscovery {
		w.etcd = newEtcdHost(w.log, w.network)
		if err := w.etcd.start(); err != nil {
			return err
		}
	}
	for i := range w.Servers {
		w.backends = append(w.backends, newBackend(w, i))
	}
	w.source = newChangingSource(w.backends)
	for _, b := range w.backends {
		if err := b.start(); err != nil {
			return err
		}
	}
	if w.etcd != nil {
		time.Sleep(detected) // until etcd has them
	}
	for i := range w.Pools.Frontends {
		f := newFrontend(w, i)
		w.frontends = append(w.frontends, f)
		if err := f.start(); err != nil {
			return err
		}
	}
	return nil
}

// close stops everything.
func (w *poolWorld) close() {
	for _, f := range w.frontends {
		f.stop(stopped)
	}
	w.released()
	w.end()
	for _, b := range w.backends {
		b.stop(stopped)
	}
	w.running.Wait()
	if w.etcd != nil {
		w.etcd.stop()
	}
	w.calls.checkExecutions()
}

// partition cuts the zones off from each other, until the result is called.
func (w *poolWorld) partition() (heal func()) {
	var heals []func()
	for i := range w.Zones {
		zone := network.Zone(zoneName(i))
		heals = append(heals, w.network.Cut(zone, network.Others(zone)))
	}
	count := func(n int) {
		w.mu.Lock()
		w.mu.partitions += n
		w.mu.changed = time.Now()
		w.mu.Unlock()
		w.observeOutages()
	}
	count(1)
	return func() {
		for _, heal := range heals {
			heal()
		}
		count(-1)
	}
}

// must reports an error of the simulator.
func (w *poolWorld) must(err error) {
	if err != nil {
		w.calls.wrongf("simulator", "%v", err)
	}
}

func zoneName(i int) string { return string(rune('a' + i)) }

// machine is the host of a server or of a front end, with the faults that it has.
type machine struct {
	w    *poolWorld
	name string
	ip   string
	zone string
	host *network.Host

	mu struct {
		sync.Mutex
		off, cut, delayed int       // faults that are active
		slow              int       // of its programs
		changed           time.Time // when off or cut, or a process, changed last
		silenced          time.Time // when cut changed last, or power was lost
	}
}

func (m *machine) init(w *poolWorld, kind, ip string, i int) {
	m.w, m.name, m.ip, m.zone = w, fmt.Sprintf("%s-%d", kind, i), ip, zoneName(i%w.Zones)
	m.host = w.network.Host(ip, m.zone)
}

// with counts a fault until end, which ends it, is called.
func (m *machine) with(active *int, end func()) func() {
	count := func(n int) {
		m.mu.Lock()
		*active += n
		m.mu.changed = time.Now()
		if active == &m.mu.cut {
			m.mu.silenced = m.mu.changed
		}
		m.mu.Unlock()
		m.w.observeOutages()
	}
	count(1)
	return func() {
		end()
		count(-1)
	}
}

// change records that a process has ended or begun, or its connections.
func (m *machine) change() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.changed = time.Now()
}

// changedSince reports whether the processes, connections or delays of any of the machines, or the
// connection of the zones, have changed since a time.
func (w *poolWorld) changedSince(t time.Time, machines ...*machine) bool {
	w.mu.Lock()
	changed := w.Zones > 1 && (w.mu.partitions > 0 || w.mu.changed.After(t))
	w.mu.Unlock()
	return changed || slices.ContainsFunc(machines, func(m *machine) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.mu.changed.After(t) || m.mu.slow > 0 || m.mu.delayed > 0
	})
}

// silencedSince reports whether any of the machines, or zones, were cut off or connected again since a
// time.
func (w *poolWorld) silencedSince(t time.Time, machines ...*machine) bool {
	w.mu.Lock()
	parted := w.Zones > 1 && w.mu.changed.After(t)
	w.mu.Unlock()
	return parted || slices.ContainsFunc(machines, func(m *machine) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.mu.silenced.After(t)
	})
}

// disturbedSince reports whether faults may have delayed packets between machines since a time.
func (w *poolWorld) disturbedSince(t time.Time, machines ...*machine) bool {
	return w.changedSince(t, machines...) || w.silencedSince(t.Add(-pastOutage), machines...)
}

// connected reports whether packets pass between two machines.
func (w *poolWorld) connected(a, b *machine) bool {
	w.mu.Lock()
	parted := w.mu.partitions > 0 && a.zone != b.zone
	w.mu.Unlock()
	return !parted && !a.isCut() && !b.isCut()
}

func (m *machine) isCut() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.cut > 0
}

// findings are the violated rules, and the number of answers of each kind.
type findings struct {
	mu    sync.Mutex
	wrong []string
	kinds map[string]int
}

func (f *findings) wrongf(rule, format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.wrong) < maxWrong {
		f.wrong = append(f.wrong, rule+": "+strings.TrimSpace(fmt.Sprintf(format, args...)))
	}
}

func (f *findings) other(kind string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kinds[kind]++
}

func (f *findings) violations() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.wrong)
}

func (f *findings) answers() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.kinds
}
