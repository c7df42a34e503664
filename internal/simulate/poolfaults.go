package simulate

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/internal/simulate/chance"
	"docstore/internal/simulate/network"
)

// poolFault is a kind of fault of servers and front ends. begin begins one, and returns how it ends;
// nil: at once.
type poolFault struct {
	name    string
	longest time.Duration // the longest duration; 0: it has none
	server  func(b *backend, d *chance.Draw) (end func())
	client  func(f *frontend, d *chance.Draw) (end func())
	all     func(w *poolWorld, f Fault, d *chance.Draw) (end func())
}

var poolFaults = []poolFault{
	{name: "server restart", longest: 10 * time.Second, server: func(b *backend, _ *chance.Draw) func() { return b.turnOff(stopped) }},
	{name: "server kill", longest: 10 * time.Second, server: func(b *backend, _ *chance.Draw) func() { return b.turnOff(killed) }},
	{name: "server power cut", longest: 30 * time.Second, server: func(b *backend, _ *chance.Draw) func() { return b.turnOff(powerCut) }},
	{name: "server drained", longest: 30 * time.Second, server: func(b *backend, _ *chance.Draw) func() { return b.drain() }},
	{name: "server isolated", longest: time.Minute, server: func(b *backend, _ *chance.Draw) func() { return b.with(&b.mu.cut, b.host.Isolate()) }},
	{name: "server silent", longest: time.Minute, server: func(b *backend, _ *chance.Draw) func() { return b.with(&b.mu.cut, b.host.Silence()) }},
	{name: "server connections reset", server: func(b *backend, _ *chance.Draw) func() {
		if p := b.current(); p != nil {
			b.change()
			p.net.Reset()
		}
		return nil
	}},
	{name: "server link slow", longest: time.Minute, server: func(b *backend, d *chance.Draw) func() {
		return b.with(&b.mu.delayed, b.host.Slow(d.Duration(time.Millisecond, 100*time.Millisecond)))
	}},
	{name: "server slow", longest: time.Minute, server: func(b *backend, _ *chance.Draw) func() { return b.with(&b.mu.slow, func() {}) }},
	{name: "server fails requests", longest: time.Minute, server: func(b *backend, _ *chance.Draw) func() {
		b.failing.Add(1)
		return func() { b.failing.Add(-1) }
	}},
	{name: "connections without hello", longest: 10 * time.Second, server: func(b *backend, _ *chance.Draw) func() { return b.w.silentConnections(b) }},
	{name: "client in a crash loop", longest: time.Minute, server: func(b *backend, _ *chance.Draw) func() { return b.w.crashLoop(b) }},
	{name: "server not listed", longest: time.Minute, server: func(b *backend, _ *chance.Draw) func() {
		if b.w.Pools.Discovery != changingDiscovery {
			return nil
		}
		return b.w.source.remove(b)
	}},
	{name: "client restart", client: func(f *frontend, _ *chance.Draw) func() { f.restart(stopped); return nil }},
	{name: "client kill", client: func(f *frontend, _ *chance.Draw) func() { f.restart(killed); return nil }},
	{name: "client power cut", client: func(f *frontend, _ *chance.Draw) func() { f.restart(powerCut); return nil }},
	{name: "client isolated", longest: time.Minute, client: func(f *frontend, _ *chance.Draw) func() { return f.with(&f.mu.cut, f.host.Isolate()) }},
	{name: "client link slow", longest: time.Minute, client: func(f *frontend, d *chance.Draw) func() {
		return f.with(&f.mu.delayed, f.host.Slow(d.Duration(time.Millisecond, 100*time.Millisecond)))
	}},
	{name: "client reads slowly", longest: time.Minute, client: func(f *frontend, _ *chance.Draw) func() {
		f.slowReads.Add(1)
		return f.with(&f.mu.slow, func() { f.slowReads.Add(-1) })
	}},
	{name: "zone partition", longest: time.Minute, all: func(w *poolWorld, _ Fault, _ *chance.Draw) func() { return w.partition() }},
	{name: "many silent", longest: time.Minute, all: func(w *poolWorld, _ Fault, d *chance.Draw) func() {
		return w.many(d, func(b *backend) func() { return b.with(&b.mu.cut, b.host.Silence()) })
	}},
	{name: "many isolated", longest: time.Minute, all: func(w *poolWorld, _ Fault, d *chance.Draw) func() {
		return w.many(d, func(b *backend) func() { return b.with(&b.mu.cut, b.host.Isolate()) })
	}},
	{name: "all off", longest: 30 * time.Second, all: func(w *poolWorld, _ Fault, d *chance.Draw) func() {
		how := []ending{stopped, killed, powerCut}[d.Int(3)]
		return together(w.backends, func(b *backend) func() { return b.turnOff(how) })
	}},
	{name: "all drained", longest: 30 * time.Second, all: func(w *poolWorld, _ Fault, _ *chance.Draw) func() {
		return together(w.backends, func(b *backend) func() { return b.drain() })
	}},
	{name: "rolling restart", all: func(w *poolWorld, _ Fault, d *chance.Draw) func() {
		down, up := d.Duration(100*time.Millisecond, 8*time.Second), d.Duration(200*time.Millisecond, 3*time.Second)
		if w.etcd != nil {
			up = rejoinEtcd
		}
		w.faults.Go(func() { w.rollingRestart(down, up) })
		return nil
	}},
	{name: "discovery away", longest: 2 * time.Minute, all: func(w *poolWorld, _ Fault, _ *chance.Draw) func() {
		switch {
		case w.etcd != nil:
			w.etcd.stop()
			return func() { w.must(w.etcd.start()) }
		case w.Pools.Discovery == changingDiscovery:
			return w.source.takeAway()
		}
		return nil
	}},
}

// poolTheme restricts a part of the configuration to values that have an effect together.
type poolTheme struct {
	servers     []int
	discoveries []string
	kinds       []string // of faults; nil: all
}

var (
	fewServers  = []int{2, 2, 3, 5}
	manyServers = []int{10, 20, 60}
	allServers  = slices.Concat(fewServers, manyServers)

	unlisted = []string{staticDiscovery}
	listed   = []string{etcdDiscovery, changingDiscovery}
	allLists = []string{staticDiscovery, staticDiscovery, staticDiscovery, changingDiscovery, changingDiscovery, etcdDiscovery}
)

var poolThemes = []poolTheme{
	{manyServers, unlisted, []string{"many silent", "client restart"}},
	{manyServers, unlisted, []string{"many isolated", "many silent", "client kill"}},
	{fewServers, allLists, []string{"rolling restart"}},
	{fewServers, unlisted, []string{"rolling restart", "server kill", "server connections reset"}},
	{allServers, allLists, []string{"all off"}},
	{fewServers, allLists, []string{"all drained", "server restart"}},
	{fewServers, allLists, []string{"server kill", "server connections reset"}},
	{allServers, unlisted, []string{"server silent", "server slow"}},
	{fewServers, unlisted, []string{"client in a crash loop", "connections without hello"}},
	{fewServers, listed, []string{"discovery away", "client restart", "server not listed"}},
	{allServers, unlisted, []string{"client reads slowly", "client link slow"}},
	{allServers, allLists, []string{}},
	{allServers, allLists, nil},
	{allServers, allLists, nil},
}

// maxKinds is the most kinds of faults of a run: faults of one kind meet often.
const maxKinds = 5

// rejoinEtcd is the time after which a server that has restarted is in etcd again.
const rejoinEtcd = 20 * time.Second

// drawPoolFaults draws a schedule of some kinds.
func drawPoolFaults(d *chance.Draw, c Config, names []string) (faults []Fault) {
	kinds := slices.DeleteFunc(slices.Clone(poolFaults), func(k poolFault) bool { return names != nil && !slices.Contains(names, k.name) })
	if len(kinds) == 0 {
		return nil
	}
	for len(kinds) > maxKinds {
		i := d.Int(len(kinds))
		kinds = slices.Delete(kinds, i, i+1)
	}
	for range d.Int(maxFaults/2 + 1) {
		k := kinds[d.Int(len(kinds))]
		f := Fault{At: d.Duration(0, c.Work), Kind: k.name, Draw: d.Uint64()}
		switch {
		case k.server != nil:
			f.Target = fmt.Sprint("server-", d.Int(c.Servers))
		case k.client != nil:
			f.Target = fmt.Sprint("client-", d.Int(c.Pools.Frontends))
		}
		if k.longest > 0 {
			f.For = d.Duration(time.Second, k.longest)
		}
		faults = append(faults, f)
	}
	return arrange(faults)
}

// begin begins a fault.
func (w *poolWorld) begin(f Fault) (end func()) {
	k := poolFaults[slices.IndexFunc(poolFaults, func(k poolFault) bool { return k.name == f.Kind })]
	d := chance.New(f.Draw).Next(f.Kind)
	_, number, _ := strings.Cut(f.Target, "-")
	i, _ := strconv.Atoi(number) // 0 without a target
	switch {
	case k.server != nil:
		return k.server(w.backends[i], &d)
	case k.client != nil:
		return k.client(w.frontends[i], &d)
	}
	return k.all(w, f, &d)
}

// many begins a fault of a tenth of the servers, or of more.
func (w *poolWorld) many(d *chance.Draw, begin func(*backend) func()) (end func()) {
	share := []float64{0.1, 0.4, 0.7, 1}[d.Int(4)]
	return together(slices.DeleteFunc(slices.Clone(w.backends), func(*backend) bool { return !d.Bool(share) }), begin)
}

// together begins a fault of several servers.
func together(servers []*backend, begin func(*backend) func()) (end func()) {
	ends := make([]func(), len(servers))
	var group sync.WaitGroup
	for i, b := range servers {
		group.Go(func() { ends[i] = begin(b) })
	}
	group.Wait()
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// rollingRestart restarts one server after the other.
func (w *poolWorld) rollingRestart(down, up time.Duration) {
	for _, b := range w.backends {
		on := b.turnOff(stopped)
		time.Sleep(down)
		on()
		time.Sleep(up)
	}
}

const (
	loopIP = "10.0.4.1"
	// silentConns are the connections that each of hostileHosts opens.
	silentConns, hostileHosts = clientShare - 1, 3
	// loopStreams are the streams that a client opens between two crashes.
	loopStreams = 60
	// loopPause is the time between two crashes.
	loopPause = 2 * time.Second
)

// silentConnections opens connections that send nothing, from several hosts, and verifies that the
// server keeps at most the share of one client. The result closes them.
func (w *poolWorld) silentConnections(b *backend) (end func()) {
	var open atomic.Int32
	begun := time.Now()
	hosts := make([]*network.Process, hostileHosts)
	for i := range hosts {
		hosts[i] = w.network.Host(fmt.Sprintf("10.0.5.%d", i+1), b.zone).Boot()
		for range silentConns {
			conn, err := hosts[i].Dial(w.alive, "tcp", b.address())
			if err != nil {
				break
			}
			open.Add(1)
			w.running.Go(func() {
				_, _ = conn.Read(make([]byte, 1)) // until it is closed
				open.Add(-1)
			})
		}
	}
	time.Sleep(soon)
	if n := open.Load(); n > clientShare && !w.disturbedSince(begun, &b.machine) {
		w.calls.wrongf("share", "%s keeps %d connections that send nothing; it may keep %d", b.name, n, clientShare)
	}
	return func() {
		for _, p := range hosts {
			p.Kill()
		}
	}
}

// crashLoop is a client that opens streams and crashes, again and again until the result is called.
// Their handlers do not notice at once.
func (w *poolWorld) crashLoop(b *backend) (end func()) {
	ctx, cancel := context.WithCancel(w.alive)
	w.running.Go(func() {
		for ctx.Err() == nil {
			p := w.network.Host(loopIP, b.zone).Boot()
			pool, err := boxcarrpc.NewPool(discovery.Static(b.address()), &boxcarrpc.PoolOptions{Size: 1, Insecure: true, Name: "loop", Dialer: dialerOf(p), Seed: 1})
			w.must(err)
			life, crash := context.WithTimeout(ctx, loopPause)
			for range loopStreams {
				if _, err := pool.Stream(life, methodHold, nil); err != nil {
					break
				}
			}
			<-life.Done()
			crash()
			p.Kill()
			w.must(pool.Close())
		}
	})
	return cancel
}
