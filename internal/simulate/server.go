package simulate

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"docstore/boxcarrpc"
	"docstore/docservice/server"
	"docstore/docservice/server/bucketsource"
	"docstore/internal/ctxtime"
	"docstore/internal/host"
	"docstore/internal/simulate/disk"
	"docstore/internal/simulate/network"
	"docstore/queue/bucket"
)

const (
	// collectionName is the collection that all servers serve.
	collectionName = "jobs"
	// storeURL is the URL of the collection for options and messages.
	storeURL = "sim://store/jobs"
	dataDir  = "/data"
)

// serverHost is a serving machine, with the daemon that runs on it.
type serverHost struct {
	w    *world
	name string
	ip   string
	zone string
	// column is its replica set; empty: it holds the whole collection.
	column string
	disk   *disk.Disk
	copier *copier // nil: it reads the object store
	host   *network.Host

	mu struct {
		sync.Mutex
		process  *serverProcess // nil: none is running
		isolated int            // faults that cut the host off
		doubted  time.Time      // the last moment at which a fault explains that documents are unavailable
		powerCut bool           // since the last process
		off      int            // faults that keep the machine off
		on       chan struct{}  // closed when it may start again
	}
}

// serverProcess is one incarnation of docserviced.
type serverProcess struct {
	server *server.Server // nil: it is starting
	files  *disk.Process
	net    *network.Process
	ended  chan struct{} // closed when it is to end
	once   sync.Once
	killed bool
	goals  []int // see account.started
	sure   bool  // it could read the store all the time
}

func newServerHost(w *world, i int) *serverHost {
	zone := string(rune('a' + i%w.config.Zones))
	h := &serverHost{w: w, name: fmt.Sprintf("server-%d", i), ip: fmt.Sprintf("10.0.0.%d", i+1), zone: zone, column: w.config.columnOf(i)}
	h.disk, h.host = disk.New(w.chance, h.name), w.network.Host(h.ip, zone)
	if w.config.Copies {
		h.copier = &copier{h: h}
	}
	return h
}

func (h *serverHost) boxcar() string { return net.JoinHostPort(h.ip, "7070") }
func (h *serverHost) http() string   { return net.JoinHostPort(h.ip, "7071") }

// run starts docserviced again and again until the world ends.
func (h *serverHost) run() {
	for h.isOn() {
		h.mu.Lock()
		powerCut := h.mu.powerCut
		h.mu.powerCut = false
		p := &serverProcess{files: h.disk.Boot(), net: h.host.Boot(), ended: make(chan struct{}), sure: h.w.storeIsFine() && h.mu.isolated == 0}
		h.mu.process = p
		h.mu.Unlock()
		p.goals = h.w.account.started(h.name, powerCut)
		if h.copier != nil {
			if powerCut {
				h.w.account.lostCopy(h.name)
				h.mu.Lock()
				h.mu.doubted = time.Now() // appended bytes of an open segment were not synced
				h.mu.Unlock()
			}
			p.goals = h.copier.goals()
		}
		h.serve(p)
		if !ctxtime.Sleep(h.w.alive, restartPause) {
			return
		}
	}
}

// isOn waits until the machine is on. It returns false when the world has ended.
func (h *serverHost) isOn() bool {
	for h.w.alive.Err() == nil {
		h.mu.Lock()
		off, on := h.mu.off > 0, h.mu.on
		h.mu.Unlock()
		if !off {
			return true
		}
		select {
		case <-on:
		case <-h.w.alive.Done():
		}
	}
	return false
}

// turnOff ends the process and keeps the machine off, until the result is called. erased: its disk
// is replaced by an empty one.
func (h *serverHost) turnOff(erased bool) (turnOn func()) {
	h.mu.Lock()
	if h.mu.off++; h.mu.off == 1 {
		h.mu.on = make(chan struct{})
	}
	h.mu.Unlock()
	h.stop(powerCut)
	if erased {
		h.w.must(h.disk.Files().RemoveAll(dataDir))
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.mu.off--; h.mu.off == 0 {
			close(h.mu.on)
		}
	}
}

// serve runs a process to its end.
func (h *serverHost) serve(p *serverProcess) {
	s, err := server.Start(h.options(p))
	if err != nil {
		h.w.log.add(h.name, "start failed: %v", err)
		h.mu.Lock()
		h.mu.process = nil
		h.mu.Unlock()
		p.files.Kill()
		p.net.Kill()
		return
	}
	h.mu.Lock()
	p.server = s
	h.mu.Unlock()
	h.w.log.add(h.name, "started")
	select {
	case <-p.ended:
	case <-s.Failed():
		h.w.log.add(h.name, "failed")
	case <-h.w.alive.Done():
	}
	h.mu.Lock()
	h.mu.process = nil
	killed := p.killed
	h.mu.Unlock()
	end := func() {
		if err := s.Stop(gracePeriod); err != nil && !killed {
			h.w.log.add(h.name, "stop: %v", err)
		}
		p.files.Kill()
		p.net.Kill()
	}
	if killed {
		h.w.running.Go(end) // its goroutines end, and change nothing
		return
	}
	end()
}

const (
	gracePeriod = 2 * time.Second
	rejoin      = 30 * time.Second
	keepMoved   = 20 * time.Second
)

// options returns the options of docserviced.
func (h *serverHost) options(p *serverProcess) server.Options {
	reachable := func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.mu.isolated == 0 && !p.killed
	}
	o := server.Options{
		Collections: []server.Collection{{Name: collectionName, Source: storeURL}},
		DataDir:     dataDir, Boxcar: h.boxcar(), HTTP: server.HTTP{Address: h.http(), Open: true, LookUp: true},
		Memory: h.w.config.Memory, Security: server.Security{Insecure: true, InsecureAnonymous: true}, Quarantine: true,
		ScrubInterval: time.Minute, Logger: h.w.log.logger(h.name),
		Host:      &host.Host{FS: p.files, Listen: func(_, address string) (net.Listener, error) { return p.net.Listen(address) }, Dial: p.net.Dial, Now: time.Now},
		Memcached: h.w.cacheAddresses(),
		Source: bucketsource.New(bucketsource.Options{
			Etcd: h.w.etcdAddress(), Column: h.column, Rejoin: rejoin, KeepMoved: keepMoved, Advertise: h.boxcar(), Weight: 1, Zone: h.zone,
			Pool:      boxcarrpc.PoolOptions{Insecure: true, Dialer: func(ctx context.Context, address string) (net.Conn, error) { return p.net.Dial(ctx, "tcp", address) }},
			Downloads: 4, PeerTransfers: 4, OpenBucket: func(context.Context, string, bucket.Options) (*bucket.Client, error) {
				return bucket.NewClient(h.w.store.For(h.name, reachable), bucket.Options{})
			},
		}),
	}
	if h.copier != nil {
		o.Collections[0].Source = copyDir
	}
	return o
}

// current returns the process, nil if none is running.
func (h *serverHost) current() *serverProcess {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.process
}

// ready reports whether the server says that it is ready.
func (h *serverHost) ready() bool {
	h.mu.Lock()
	p := h.mu.process
	var s *server.Server
	if p != nil && !p.killed {
		s = p.server
	}
	h.mu.Unlock()
	return s != nil && s.Ready()
}

// how a process ends.
type ending int

const (
	stopped  ending = iota // by a signal
	killed                 // at this moment
	powerCut               // with the machine
)

// stop ends the process.
func (h *serverHost) stop(how ending) {
	h.mu.Lock()
	p := h.mu.process
	if p != nil && how != stopped {
		p.killed = true
	}
	if how == powerCut {
		h.mu.powerCut = true
	}
	h.mu.Unlock()
	if p == nil {
		return
	}
	switch how {
	case killed:
		p.files.Kill()
		p.net.Kill()
	case powerCut:
		h.disk.PowerCut()
		p.net.Vanish()
	}
	p.once.Do(func() { close(p.ended) })
}

// crashAt ends the process at its n-th writing operation from now on.
func (h *serverHost) crashAt(n int64, power bool) {
	p := h.current()
	if p == nil {
		return
	}
	p.files.CrashAt(n, power, func() {
		how := killed
		if power {
			how = powerCut
		}
		h.mu.Lock()
		same := h.mu.process == p
		h.mu.Unlock()
		if same {
			h.w.log.add(h.name, "crashed at an operation (power lost: %v)", power)
			h.stop(how)
		}
	})
}

// doubt records that a fault explains unavailable documents until now, and that the store may
// not have been readable.
func (h *serverHost) doubt() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.doubted = time.Now()
	if h.mu.process != nil {
		h.mu.process.sure = false
	}
}

// doubtful returns the end of a fault that has begun, and that explains unavailable documents.
func (h *serverHost) doubtful(end func()) func() {
	h.doubt()
	return func() {
		end()
		h.doubt()
	}
}

// isIsolated reports whether the host is cut off.
func (h *serverHost) isIsolated() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.isolated > 0
}

// isolate cuts the host off, until the result is called.
func (h *serverHost) isolate() (heal func()) {
	h.mu.Lock()
	h.mu.isolated++
	h.mu.Unlock()
	h.doubt()
	rejoin := h.host.Isolate()
	return func() {
		rejoin()
		h.mu.Lock()
		h.mu.isolated--
		h.mu.Unlock()
		h.doubt()
	}
}
