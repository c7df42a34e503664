package simulate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/budget"
	"docstore/boxcarrpc/discovery"
	boxcaretcd "docstore/boxcarrpc/discovery/etcd"
	"docstore/docservice/placement/etcdmap"
	"docstore/internal/ctxtime"
	"docstore/internal/simulate/chance"
	"docstore/internal/simulate/network"
)

// Methods of the servers.
const (
	methodGet   = "/pools/Get"   // idempotent
	methodPut   = "/pools/Put"   // not idempotent
	methodWatch = "/pools/Watch" // a stream of numbers
	methodHold  = "/pools/Hold"  // a stream whose handler ignores that its client is gone
)

const (
	// maxStreams is the limit of streams of a server, so that the share of a client is the smallest.
	maxStreams = 1 << 10
	// clientShare is the share of a client: of the streams, and of the connections before HELLO.
	clientShare = 128
	// holdTime is the time of a handler that ignores its context.
	holdTime = 20 * time.Second
	// slowFactor is how much longer handlers take on a slow server.
	slowFactor = 10
	// largeResponse is above the size for which handlers reserve memory.
	largeResponse = 100 << 10
)

// backend is a serving machine.
type backend struct {
	machine

	process  *backendProcess // nil: none is running; guarded by machine.mu
	draining int             // faults that drain it; guarded by machine.mu
	failing  atomic.Int32    // faults that make its handlers fail
}

// backendProcess is one incarnation of a server.
type backendProcess struct {
	b      *backend
	server *boxcarrpc.Server
	net    *network.Process
	budget *budget.Budget
	store  *etcdmap.Store // nil: it is not registered in etcd
	number *boxcaretcd.Number
	listed bool          // in etcd, or not registered there; guarded by machine.mu
	ended  chan struct{} // closed when its handlers end

	mu struct {
		sync.Mutex
		slots       map[int]string // requests that run, by slot
		interactive int            // of these, those without batch priority
		instant     time.Time      // of the last change of interactive
		during      int            // the interactive ones at some time of the instant
		most        int            // the most of these
		streams     map[string]int // handlers that run, by the address of their client
	}
}

func newBackend(w *poolWorld, i int) *backend {
	b := &backend{}
	b.init(w, "server", fmt.Sprintf("10.0.0.%d", i+1), i)
	return b
}

func (b *backend) address() string { return net.JoinHostPort(b.ip, "7070") }

// start starts a process.
func (b *backend) start() error {
	p := &backendProcess{b: b, net: b.host.Boot(), ended: make(chan struct{}), budget: budget.New(boxcarrpc.DefaultBufferBytes), listed: b.w.etcd == nil}
	p.mu.slots, p.mu.streams = map[int]string{}, map[string]int{}
	if b.w.Memory > 0 {
		p.budget = budget.New(b.w.Memory)
	}
	p.server = boxcarrpc.NewServer(p.handle, &boxcarrpc.ServerOptions{
		MaxLanes: b.w.Pools.Slots, MaxStreams: maxStreams, MaxConns: maxStreams, Admission: budget.Admission{MaxInFlight: b.w.Pools.InFlight},
		StreamHandler: p.stream, Insecure: true, Budget: p.budget, Zone: b.zone, Name: b.name,
	})
	l, err := p.net.Listen(b.address())
	if err != nil {
		return err
	}
	b.w.running.Go(func() { _ = p.server.Serve(l) }) // until it is stopped
	if err := p.register(); err != nil {
		return err
	}
	b.mu.Lock()
	b.process = p
	drained := b.draining > 0
	b.mu.changed = time.Now()
	b.mu.Unlock()
	b.w.observeOutages()
	if drained {
		p.server.Drain()
	}
	b.w.log.add(b.name, "started")
	return nil
}

// register makes discovery know the server.
func (p *backendProcess) register() (err error) {
	if p.b.w.etcd == nil {
		return nil
	}
	if p.store, err = p.b.w.openStore(p.net, nil); err != nil {
		return err
	}
	registry, err := p.store.Column(columnName)
	if err != nil {
		return err
	}
	if p.number, err = registry.Backend(discovery.Server{Address: p.b.address(), Zone: p.b.zone}); err != nil {
		return err
	}
	p.b.w.running.Go(func() {
		if _, err := p.number.Wait(context.Background()); err == nil { // until it is closed
			p.b.mu.Lock()
			p.listed = true
			p.b.mu.changed = time.Now()
			p.b.mu.Unlock()
			p.b.w.observeOutages()
		}
	})
	return nil
}

// current returns the process, nil if none is running.
func (b *backend) current() *backendProcess {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.process
}

// stop ends the process.
func (b *backend) stop(how ending) {
	b.mu.Lock()
	p := b.process
	b.process = nil
	b.mu.changed = time.Now()
	if how == powerCut {
		b.mu.silenced = b.mu.changed
	}
	b.mu.Unlock()
	b.w.observeOutages()
	if p == nil {
		return
	}
	b.w.log.add(b.name, "ends (%d)", how)
	switch how {
	case stopped:
		p.leave()
		ctx, cancel := context.WithTimeout(context.Background(), gracePeriod)
		defer cancel()
		if err := p.server.Shutdown(ctx); err != nil {
			b.w.log.add(b.name, "shutdown: %v", err)
		}
		p.net.Kill()
	case killed:
		p.net.Kill()
	case powerCut:
		p.net.Vanish()
	}
	close(p.ended)
	b.w.running.Go(func() { // its goroutines end, and change nothing
		if how != stopped {
			p.leave()
		}
		b.w.must(p.server.Close())
	})
	p.checkPriority()
}

// leave removes the server from discovery.
func (p *backendProcess) leave() {
	if p.store != nil {
		_, _ = p.number.Close(), p.store.Close() // etcd may be away
	}
}

// turnOff keeps the machine without a process until the result is called.
func (b *backend) turnOff(how ending) (turnOn func()) {
	end := b.with(&b.mu.off, func() {})
	b.stop(how)
	return func() {
		end()
		b.mu.Lock()
		start := b.mu.off == 0 && b.process == nil
		b.mu.Unlock()
		if start {
			b.w.must(b.start())
		}
	}
}

// drain drains the server until the result is called.
func (b *backend) drain() (undrain func()) {
	set := func() {
		b.mu.Lock()
		p, draining := b.process, b.draining > 0
		b.mu.Unlock()
		switch {
		case p == nil:
		case draining:
			p.server.Drain()
		default:
			p.server.Undrain()
		}
	}
	end := b.with(&b.draining, func() {})
	set()
	return func() {
		end()
		set()
	}
}

func (b *backend) isDraining() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.draining > 0
}

// usable reports whether a front end can use the server.
func (b *backend) usable(f *frontend) bool {
	b.mu.Lock()
	up := b.process != nil && b.process.listed && b.draining == 0
	b.mu.Unlock()
	return up && b.w.source.has(b) && b.w.connected(&b.machine, &f.machine)
}

var errInjected = errors.New("injected")

// errPanic is the panic of a handler. Its client gets boxcarrpc.CodeInternal.
var errPanic error = &boxcarrpc.Error{Code: boxcarrpc.CodeInternal, Message: "panic"}

// handlerCodes are the codes of errors of handlers; the last ones do not fit into a response.
var handlerCodes = []boxcarrpc.Code{
	boxcarrpc.CodeNotFound, boxcarrpc.CodeFailedPrecondition, boxcarrpc.CodeInternal, boxcarrpc.CodeUnavailable, boxcarrpc.CodeResourceExhausted, 65535, 65536 + 5, 1 << 20,
}

// handle serves a request.
func (p *backendProcess) handle(ctx context.Context, method string, request, dst []byte) ([]byte, error) {
	b := p.b
	c := b.w.calls.find(string(request))
	if c == nil {
		b.w.calls.wrongf("request", "%s got a request %q, which was never sent", b.name, request)
		return dst, errInjected
	}
	p.enter(ctx, c)
	defer p.exit(ctx)
	d := chance.New(c.draw).Next(b.name)
	if d.Bool(b.w.Pools.Errors / 4) {
		c.refuse()
		return dst, boxcarrpc.NotProcessed(fmt.Errorf("%s is not processed", c.id))
	}
	e := c.begin(ctx, p)
	took := d.Duration(0, 2*b.w.Pools.Handler)
	if d.Bool(0.02) {
		took *= slowFactor
	}
	b.mu.Lock()
	if b.mu.slow > 0 {
		took *= slowFactor
	}
	b.mu.Unlock()
	select {
	case <-time.After(took):
	case <-ctx.Done():
		return dst, e.end(ctx.Err())
	case <-p.ended:
		return dst, e.end(errInjected)
	}
	switch fails := d.Bool(b.w.Pools.Errors); {
	case b.failing.Load() > 0:
		return dst, e.end(&boxcarrpc.Error{Code: boxcarrpc.CodeInternal, Message: e.message()})
	case fails && d.Bool(0.05):
		panic(e.end(errPanic))
	case fails:
		return dst, e.end(&boxcarrpc.Error{Code: handlerCodes[d.Int(len(handlerCodes))], Message: e.message()})
	}
	if c.size > 0 {
		if err := budget.Reserve(ctx, c.size); err != nil {
			return dst, e.end(err)
		}
	}
	_ = e.end(nil)
	return c.appendResponse(dst), nil
}

// enter records that a request runs in its slot.
func (p *backendProcess) enter(ctx context.Context, c *rpcCall) {
	slot := boxcarrpc.SlotOf(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if other, busy := p.mu.slots[slot]; busy {
		p.b.w.calls.wrongf("slot", "%s runs %s in slot %d while it runs %s there", p.b.name, c.id, slot, other)
	}
	p.mu.slots[slot] = c.id
	p.countLocked(ctx, 1)
}

// countLocked counts interactive requests and streams that run. Those of one instant were in flight
// together, although the handlers of canceled ones may run one after the other.
func (p *backendProcess) countLocked(ctx context.Context, n int) {
	if boxcarrpc.IsBatch(ctx) {
		return
	}
	if now := time.Now(); !now.Equal(p.mu.instant) {
		p.mu.instant, p.mu.during = now, p.mu.interactive
	}
	p.mu.interactive += n
	p.mu.during += max(n, 0)
	p.mu.most = max(p.mu.most, p.mu.during)
}

func (p *backendProcess) exit(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.slots, boxcarrpc.SlotOf(ctx))
	p.countLocked(ctx, -1)
}

// checkPriority verifies that batch requests have not taken the quarter of the requests in flight
// that is reserved for interactive ones.
func (p *backendProcess) checkPriority() {
	const name = "in_flight"
	s := p.server.Stats()
	p.mu.Lock()
	defer p.mu.Unlock()
	refused, reserved := s.RefusedBy[name]-s.RefusedBatchBy[name], p.b.w.Pools.InFlight/4
	if refused > 0 && p.mu.most < reserved-1 {
		p.b.w.calls.wrongf("priority", "%s has refused %d interactive requests, of which it had at most %d at a time; %d are reserved", p.b.name, refused, p.mu.most, reserved)
	}
}

// stream serves a stream.
func (p *backendProcess) stream(ctx context.Context, method string, s *boxcarrpc.ServerStream) error {
	p.countStream(ctx, 1)
	defer p.countStream(ctx, -1)
	if method == methodHold {
		select {
		case <-time.After(holdTime):
		case <-p.ended:
		}
		return nil
	}
	id, err := s.Receive(nil)
	if err != nil {
		return err
	}
	d := chance.New(p.b.w.Seed).Next(string(id))
	pause := d.Duration(time.Second, 80*time.Second)
	for n := uint64(0); ; n++ {
		if err := s.Send(binary.BigEndian.AppendUint64(nil, n)); err != nil {
			return err
		}
		wait, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(p.b.w.alive, cancel)
		slept := ctxtime.Sleep(wait, pause)
		stop()
		cancel()
		if !slept {
			return nil
		}
	}
}

// countStream counts the handlers of a client, and verifies its share.
func (p *backendProcess) countStream(ctx context.Context, n int) {
	host, _, err := net.SplitHostPort(boxcarrpc.PeerOf(ctx).Address.String())
	p.b.w.must(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.countLocked(ctx, n)
	if p.mu.streams[host] += n; p.mu.streams[host] > clientShare {
		p.b.w.calls.wrongf("share", "%s runs the handlers of %d streams of %s; a client may have %d", p.b.name, p.mu.streams[host], host, clientShare)
	}
}
