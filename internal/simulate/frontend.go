package simulate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/boxcarrpc/subset"
	"docstore/docservice/placement/etcdmap"
	"docstore/docservice/sharded/etcdclient"
	"docstore/internal/ctxtime"
	"docstore/internal/simulate/network"
	"docstore/internal/vfs"
)

const (
	// callTimeout is the deadline of most calls.
	callTimeout = 8 * time.Second
	// columnName is the column of the servers in etcd.
	columnName = "a"
	// lastServersDir is the directory of the last servers of a front end.
	lastServersDir = "/last"
	// slowReadPause is the pause of a front end that reads slowly before each readBytes.
	slowReadPause = 5 * time.Millisecond
	readBytes     = 4 << 10
)

// frontend is a machine with a pool.
type frontend struct {
	machine
	files vfs.FS // of the last servers

	// Of the process; guarded by machine.mu.
	pool  *boxcarrpc.Pool
	net   *network.Process
	store *etcdmap.Store // nil: the servers are not in etcd
	out   bool           // it can use no server
	outAt time.Time      // the last time of that

	slowReads atomic.Int32 // faults that make it read slowly
	sent      atomic.Int64 // calls
	batch     bool         // its calls have batch priority

	// Of the monitor.
	retries   uint64
	retriedAt time.Time
	lost      uint64 // slots
	lostAt    time.Time
	slotless  time.Time // since when it has no slots; zero: it has some; guarded by machine.mu
}

func newFrontend(w *poolWorld, i int) *frontend {
	f := &frontend{files: vfs.NewMem(), batch: i%3 == 2}
	f.init(w, "client", fmt.Sprintf("10.0.1.%d", i+1), i)
	return f
}

// start starts a process.
func (f *frontend) start() error {
	c := f.w.Pools
	p := f.host.Boot()
	o := boxcarrpc.PoolOptions{
		Size: c.Size, SubsetSize: c.Subset, MaxWait: c.MaxWait, Insecure: true, Name: f.name, Seed: f.w.Seed | 1, Logger: f.w.log.logger(f.name),
		Methods: map[string]boxcarrpc.Method{methodGet: {Idempotent: true, HedgeAfter: c.Hedge}},
		Dialer: func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := p.Dial(ctx, "tcp", address)
			if err != nil {
				return nil, err
			}
			return &slowConn{conn, f}, nil
		},
	}
	if f.w.Zones > 1 {
		o.Zone = f.zone
	}
	if c.Subset > 0 {
		var err error
		if o.Subset, err = subset.ByName(c.Algorithm, nil); err != nil {
			return err
		}
	}
	pool, store, err := f.open(p, o)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.pool, f.net, f.store = pool, p, store
	f.mu.changed = time.Now()
	f.mu.Unlock()
	f.w.log.add(f.name, "started")
	return nil
}

// open opens the pool.
func (f *frontend) open(p *network.Process, o boxcarrpc.PoolOptions) (*boxcarrpc.Pool, *etcdmap.Store, error) {
	switch f.w.Pools.Discovery {
	case changingDiscovery:
		pool, err := boxcarrpc.NewPool(f.w.source, &o)
		return pool, nil, err
	case etcdDiscovery:
		store, err := f.w.openStore(p, f.files)
		if err != nil {
			return nil, nil, err
		}
		options := etcdclient.Options{Pool: o, Dir: lastServersDir, Logger: f.w.log.logger(f.name), Store: etcdmap.Options{FS: f.files}}
		pool, err := etcdclient.ClientOptions(store, &options).Pool(columnName)
		return pool, store, err
	}
	var addresses []string
	for _, b := range f.w.backends {
		addresses = append(addresses, b.address())
	}
	pool, err := boxcarrpc.NewPool(discovery.Static(addresses...), &o)
	return pool, nil, err
}

// current returns the pool.
func (f *frontend) current() *boxcarrpc.Pool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pool
}

// stop ends the process.
func (f *frontend) stop(how ending) {
	f.mu.Lock()
	pool, p, store := f.pool, f.net, f.store
	f.pool = nil
	f.mu.changed = time.Now()
	f.mu.Unlock()
	switch how {
	case killed:
		p.Kill()
	case powerCut:
		p.Vanish()
	}
	f.w.must(pool.Close())
	if store != nil {
		_ = store.Close() // etcd may be away
	}
	if how == stopped {
		p.Kill()
	}
	f.w.log.add(f.name, "ended (%d)", how)
}

// restart starts another process.
func (f *frontend) restart(how ending) {
	if f.current() == nil {
		return
	}
	f.stop(how)
	f.w.must(f.start())
}

// dialerOf returns the dialer of the pools of a process.
func dialerOf(p *network.Process) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) { return p.Dial(ctx, "tcp", address) }
}

// slowConn is a connection of a front end.
type slowConn struct {
	net.Conn
	f *frontend
}

func (c *slowConn) Read(b []byte) (int, error) {
	if c.f.slowReads.Load() > 0 {
		time.Sleep(slowReadPause)
		b = b[:min(len(b), readBytes)]
	}
	return c.Conn.Read(b)
}

// ask sends calls and receives streams until ctx ends.
func (f *frontend) ask(ctx context.Context) {
	if f.w.Rate > 0 {
		f.w.asking.Go(func() {
			pause := time.Duration(float64(time.Second) / f.w.Rate)
			for {
				d := f.w.chance.Next("ask " + f.name)
				if !ctxtime.Sleep(ctx, d.Duration(0, 2*pause)) {
					return
				}
				if pool := f.current(); pool != nil {
					f.w.asking.Go(func() { f.call(pool) })
				}
			}
		})
	}
	for range f.w.Pools.Watches {
		f.w.asking.Go(func() {
			for ctxtime.Sleep(ctx, time.Second) {
				if pool := f.current(); pool != nil {
					f.watch(ctx, pool)
				}
			}
		})
	}
}

// call sends a call.
func (f *frontend) call(pool *boxcarrpc.Pool) {
	d := f.w.chance.Next("call " + f.name)
	c := &rpcCall{account: f.w.calls, f: f, pool: pool, id: fmt.Sprintf("%s/%d", f.name, f.sent.Add(1)), method: methodGet, draw: d.Uint64(), began: time.Now()}
	if d.Bool(0.3) {
		c.method = methodPut
	}
	if f.w.Memory > 0 && d.Bool(0.2) {
		c.size = largeResponse + d.Int(largeResponse)
	}
	timeout := callTimeout
	if d.Bool(0.05) {
		timeout = d.Duration(time.Millisecond, time.Second)
	}
	c.deadline = c.began.Add(timeout)
	f.w.calls.add(c)
	ctx, cancel := context.WithDeadline(context.Background(), c.deadline)
	defer cancel()
	if f.batch {
		ctx = boxcarrpc.WithBatch(ctx)
	}
	hopeless := f.hopeless(pool)
	response, err := pool.Call(ctx, c.method, []byte(c.id), nil)
	c.ended(response, err)
	if took := time.Since(c.began); hopeless && took > soon && f.hopeless(pool) {
		f.w.calls.wrongf("outage", "%s waited for %v while all servers were away: %v; %v", c.id, took, err, f.state())
	}
}

// watch receives a stream until it ends.
func (f *frontend) watch(ctx context.Context, pool *boxcarrpc.Pool) {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(callTimeout, cancel) // no server is there
	s, err := pool.Stream(ctx, methodWatch, nil)
	late.Stop()
	if err != nil {
		f.w.calls.other("no stream")
		return
	}
	defer s.Close()
	if err := s.Send([]byte(fmt.Sprintf("%s/watch/%d", f.name, f.sent.Add(1)))); err != nil {
		f.w.calls.other("no stream")
		return
	}
	for n := uint64(0); ; n++ {
		message, err := s.Receive(nil)
		if err != nil {
			f.streamEnded(ctx, pool, s, began, err)
			return
		}
		if got := binary.BigEndian.Uint64(message); got != n {
			f.w.calls.wrongf("stream", "%s has received message %d of a stream, want %d", f.name, got, n)
		}
		f.w.calls.other("message")
	}
}

// streamEnded judges the end of a stream.
func (f *frontend) streamEnded(ctx context.Context, pool *boxcarrpc.Pool, s *boxcarrpc.ClientStream, began time.Time, err error) {
	refused := boxcarrpc.CodeOf(err) == boxcarrpc.CodeResourceExhausted && f.w.Pools.InFlight > 0
	if ctx.Err() != nil || f.current() != pool || f.w.Memory > 0 || refused {
		return
	}
	for _, b := range f.w.backends {
		if b.address() == s.Peer().Address.String() {
			if f.w.disturbedSince(began, &b.machine, &f.machine) || !b.usable(f) || f.w.source.changedSince(began.Add(-time.Minute)) {
				f.w.calls.other("stream ended by a fault")
				return
			}
			f.w.calls.wrongf("stream", "a stream of %s on %s ended after %v: %v", f.name, b.name, time.Since(began), err)
			return
		}
	}
	f.w.must(errors.New("a stream of an unknown server"))
}

// usable returns how many servers the front end can use.
func (f *frontend) usable() (n int) {
	for _, b := range f.w.backends {
		if b.usable(f) {
			n++
		}
	}
	return n
}

// machines returns the machines of the servers, and that of the front end.
func (f *frontend) machines() []*machine {
	all := []*machine{&f.machine}
	for _, b := range f.w.backends {
		all = append(all, &b.machine)
	}
	return all
}

// observeOutages records for each front end whether it can use a server.
func (w *poolWorld) observeOutages() {
	for _, f := range w.frontends {
		none := f.usable() == 0
		f.mu.Lock()
		if f.out || none {
			f.outAt = time.Now()
		}
		f.out = none
		f.mu.Unlock()
	}
}

// outage reports whether the front end could use no server at a time since t.
func (f *frontend) outage(t time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.out || f.outAt.After(t)
}

// silenced reports whether the front end or servers became silent, or could be reached again, since
// a time.
func (f *frontend) silenced(t time.Time) bool { return f.w.silencedSince(t, f.machines()...) }

// meetsSilent reports whether servers are silent. A pool does not notice it before it sends a call to
// them.
func (f *frontend) meetsSilent() bool {
	return slices.ContainsFunc(f.w.backends, func(b *backend) bool { return !f.w.connected(&b.machine, &f.machine) })
}

// anySilenced is silenced of all front ends.
func (w *poolWorld) anySilenced(t time.Time) bool {
	return slices.ContainsFunc(w.frontends, func(f *frontend) bool { return f.silenced(t) })
}

// changed reports whether any machine has changed since a time.
func (f *frontend) changed(t time.Time) bool { return f.w.changedSince(t, f.machines()...) }

// hopeless reports whether the pool knows that all servers are away.
func (f *frontend) hopeless(pool *boxcarrpc.Pool) bool {
	f.mu.Lock()
	since := f.slotless
	f.mu.Unlock()
	switch {
	case f.w.etcd != nil, f.w.source.changedSince(time.Now().Add(-detected)):
		return false // it tries servers that it has just learned of
	case f.silenced(time.Now().Add(-pastOutage)) && slices.ContainsFunc(f.w.backends, (*backend).isDraining):
		return false // the end of an earlier drain arrives late
	}
	return !since.IsZero() && time.Since(since) > detected && f.usable() == 0 && !f.changed(time.Now().Add(-detected)) && pool.Stats().Slots == 0
}

// state describes the pool.
func (f *frontend) state() string {
	pool := f.current()
	if pool == nil {
		return f.name + " does not run"
	}
	s := pool.Stats()
	return fmt.Sprintf("%s: %d of %d slots, %d busy, %d waiting, %d of %d servers live, %d known, %d usable", f.name, s.Slots, s.Size, s.Busy, s.Waiting, s.Live, s.Servers, s.Known, f.usable())
}
