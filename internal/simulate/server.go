package simulate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
	"sync"
	"time"

	"docstore/boxcarrpc"
	"docstore/docservice/collection"
	"docstore/docservice/server"
	"docstore/docservice/server/bucketsource"
	"docstore/docservice/server/grpcserver"
	"docstore/internal/ctxtime"
	"docstore/internal/host"
	"docstore/internal/simulate/chance"
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
	clock  clock

	mu struct {
		sync.Mutex
		process  *serverProcess // nil: none is running
		isolated int            // faults that cut the host off
		storeCut int            // faults that cut the host off from the object store
		// fetchesFail is the share of the requests for files that fail.
		fetchesFail float64
		// incrementsDenied are faults for which the store refuses requests for increments.
		incrementsDenied int
		// objectsFail is the share of the files that cannot be fetched.
		objectsFail float64
		// diskFaults are active faults for which writes may fail.
		diskFaults int
		// diskFailed is the last moment at which one began or ended.
		diskFailed time.Time
		learned    []int         // goals that a process has recorded on the disk: see learn
		doubted    time.Time     // the last moment at which a fault explains that documents are unavailable
		brief      time.Time     // the first unavailability of a minute that no fault explains
		powerCut   bool          // since the last process
		off        int           // faults that keep the machine off
		on         chan struct{} // closed when it may start again
	}
}

// serverProcess is one incarnation of docserviced.
type serverProcess struct {
	server  *server.Server // nil: it is starting
	files   *disk.Process
	net     *network.Process
	ended   chan struct{} // closed when it is to end
	once    sync.Once
	killed  bool
	goals   []int     // see account.started
	sure    bool      // it could read the store all the time
	writes  bool      // no fault of the disk was active when it started
	started time.Time // zero: it is starting
}

// mostServers is the largest number of servers.
const mostServers = 6

func serverIP(i int) string { return fmt.Sprintf("10.0.0.%d", i+1) }

func newServerHost(w *world, i int) *serverHost {
	zone := string(rune('a' + i%w.config.Zones))
	h := &serverHost{w: w, name: fmt.Sprintf("server-%d", i), ip: serverIP(i), zone: zone, column: w.config.columnOf(i)}
	h.disk, h.host = disk.New(w.chance, h.name), w.network.Host(h.ip, zone)
	h.disk.Durable(dataDir, "*.seg", func(names []string, err error) {
		w.account.wrongf("files", "%s has lost bytes of %v with the power: %v", h.name, names, err)
	})
	if w.config.Copies {
		h.copier = &copier{h: h}
	}
	return h
}

func (h *serverHost) boxcar() string { return net.JoinHostPort(h.ip, "7070") }
func (h *serverHost) http() string   { return net.JoinHostPort(h.ip, "7071") }
func (h *serverHost) grpc() string   { return net.JoinHostPort(h.ip, "7072") }

// run starts docserviced again and again until the world ends.
func (h *serverHost) run() {
	aside := ""
	for h.isOn() {
		before := aside
		if aside = h.damagedIndexes(); aside != before {
			h.w.account.lostIndex(h.name) // the last process has set one aside, and may not have built another
		}
		h.mu.Lock()
		powerCut := h.mu.powerCut
		h.mu.powerCut = false
		p := &serverProcess{
			files: h.disk.Boot(), net: h.host.Boot(), ended: make(chan struct{}),
			sure: h.w.storeIsFine() && h.mu.isolated+h.mu.storeCut+h.mu.incrementsDenied == 0, writes: h.mu.diskFaults == 0,
		}
		h.mu.process = p
		h.mu.Unlock()
		p.goals = h.w.account.started(h.name, powerCut)
		if h.copier != nil {
			if powerCut {
				h.w.account.lostCopy(h.name)
				h.excuse() // appended bytes of an open segment were not synced
			}
			p.goals = h.copier.goals()
		}
		h.serve(p)
		if !ctxtime.Sleep(h.w.alive, restartPause) {
			return
		}
	}
}

// damagedIndexes names the files of indexes that were too damaged to be opened.
func (h *serverHost) damagedIndexes() (names string) {
	files, err := h.disk.Find(dataDir, "*.table")
	h.w.must(err)
	for _, f := range files {
		if strings.HasSuffix(path.Dir(f.Name), damagedIndex) {
			names += f.Name + " "
		}
	}
	return names
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
func (h *serverHost) turnOff(erased bool) (turnOn func()) { return h.keepOff(powerCut, erased) }

// keepOff ends the process and keeps it from starting, until the result is called. erased: its files
// are removed.
func (h *serverHost) keepOff(how ending, erased bool) (start func()) {
	h.mu.Lock()
	if h.mu.off++; h.mu.off == 1 {
		h.mu.on = make(chan struct{})
	}
	h.mu.Unlock()
	h.stop(how)
	if erased {
		h.w.must(h.disk.Files().RemoveAll(dataDir))
		h.loseState()
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.mu.off--; h.mu.off == 0 {
			close(h.mu.on)
		}
	}
}

// loseState records that the next process may have an older state, as after a loss of power.
func (h *serverHost) loseState() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.powerCut = true
}

// serve runs a process to its end.
func (h *serverHost) serve(p *serverProcess) {
	s, err := server.Start(h.options(p))
	if err != nil {
		h.w.log.add(h.name, "start failed: %v", err)
		h.mu.Lock()
		h.learn()
		h.mu.process = nil
		h.mu.Unlock()
		p.files.Kill()
		p.net.Kill()
		return
	}
	h.mu.Lock()
	p.server, p.started = s, time.Now()
	h.mu.Unlock()
	h.w.log.add(h.name, "started")
	h.askNearby(false)
	select {
	case <-p.ended:
	case <-s.Failed():
		h.w.log.add(h.name, "failed")
	case <-h.w.alive.Done():
	}
	h.mu.Lock()
	h.learn()
	h.mu.process = nil
	killed := p.killed
	h.mu.Unlock()
	end := func() {
		if err := s.Stop(gracePeriod); err != nil && !killed {
			h.w.log.add(h.name, "stop: %v", err)
		}
		h.checkStopped(p)
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
	// connAge is the age at which clients over gRPC and HTTP are asked to connect again.
	connAge   = time.Minute
	rejoin    = 30 * time.Second
	keepMoved = 20 * time.Second
)

// options returns the options of docserviced.
func (h *serverHost) options(p *serverProcess) server.Options {
	reachable := func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.mu.isolated == 0 && h.mu.storeCut == 0 && !p.killed
	}
	o := server.Options{
		Collections: []server.Collection{{Name: collectionName, Source: storeURL}},
		DataDir:     dataDir, Boxcar: h.boxcar(), HTTP: server.HTTP{Address: h.http(), Open: h.w.access == nil, LookUp: true, Hosts: []string{ownHost}},
		Memory: h.w.config.Memory, Security: h.w.access.security(), Quarantine: true,
		ScrubInterval: time.Minute, Logger: h.w.log.logger(h.name),
		Host:      &host.Host{FS: p.files, Listen: func(_, address string) (net.Listener, error) { return p.net.Listen(address) }, Dial: p.net.Dial, Now: h.clock.now},
		Memcached: h.w.cacheAddresses(),
		Limits:    server.Limits{ConnAge: connAge},
		Protocol:  grpcserver.New(grpcserver.Options{Address: h.grpc()}),
		Source: bucketsource.New(bucketsource.Options{
			Etcd: h.w.etcdAddress(), Column: h.column, Group: h.group(), Rejoin: rejoin, KeepMoved: keepMoved, Advertise: h.boxcar(), Weight: 1, Zone: h.zone,
			Pool:      h.w.access.pool(boxcarrpc.PoolOptions{Dialer: func(ctx context.Context, address string) (net.Conn, error) { return p.net.Dial(ctx, "tcp", address) }}, serverToken),
			Downloads: 4, PeerTransfers: 4, OpenBucket: func(_ context.Context, _ string, o bucket.Options) (*bucket.Client, error) {
				return bucket.NewClient(bucket.NewFault(h.w.store.For(h.name, reachable), h.beforeRequest), o)
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

// started returns the server of the process, nil if none has started, or it was killed.
func (h *serverHost) started() *server.Server {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.mu.process; p != nil && !p.killed {
		return p.server
	}
	return nil
}

// ready reports whether the server says that it is ready.
func (h *serverHost) ready() bool {
	s := h.started()
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
func (h *serverHost) crashAt(n int64, power bool) { h.crashAtFile("", n, power) }

// crashAtFile is crashAt for the operations of files whose base name matches; all if pattern is empty.
func (h *serverHost) crashAtFile(pattern string, n int64, power bool) {
	p := h.current()
	if p == nil {
		return
	}
	p.files.CrashAtFile(pattern, n, power, func() {
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

// excuse records that documents may be unavailable until now.
func (h *serverHost) excuse() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.doubted = time.Now()
}

// doubt records that a fault explains unavailable documents until now, and that the store may
// not have been readable.
func (h *serverHost) doubt() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.doubted = time.Now()
	if h.mu.process != nil {
		h.learn()
		h.mu.process.sure = false
	}
}

// learnTime is the time in which a process that has started, and can read the store and write its
// disk, has recorded its goals.
const learnTime = 3 * time.Second

// learn is called before a process ends or may fail to read the store: the next process has the
// goals that it has recorded, also without the store. h.mu must be locked.
func (h *serverHost) learn() {
	if p := h.mu.process; p != nil && p.sure && p.writes && p.server != nil && h.copier == nil && time.Since(p.started) >= learnTime {
		h.mu.learned = p.goals
	}
}

// doubtful returns the end of a fault of the disk that has begun.
func (h *serverHost) doubtful(end func()) func() {
	ended := countFault(&h.mu.Mutex, &h.mu.diskFaults)
	changed := func() {
		h.doubt()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.mu.diskFailed = time.Now()
	}
	changed()
	return func() {
		end()
		ended()
		changed()
	}
}

// slowDisk delays each operation of the disk, until the result is called.
func (h *serverHost) slowDisk(delay time.Duration) (end func()) {
	end = h.disk.Slow(delay)
	if h.w.config.CopyDeletes { // segments may be deleted before the server has read their rewrites
		return h.doubtful(end)
	}
	return end
}

// reindex is docserviced reindex of all collections that have an index.
func (h *serverHost) reindex() error {
	files := h.disk.Files()
	manifests, err := h.disk.Find(dataDir, "MANIFEST")
	dirs := map[string]bool{}
	for _, m := range manifests {
		index := path.Dir(m.Name)
		if dir := path.Dir(index); err == nil && !dirs[dir] && path.Ext(index) == indexExtension && !strings.HasPrefix(path.Base(dir), "checkpoint-") {
			dirs[dir] = true
			err = collection.RequestReindex(files, dir)
		}
	}
	return err
}

// cutStore cuts the host off from the object store, until the result is called: it serves what it
// has, while others serve more.
func (h *serverHost) cutStore() (heal func()) {
	ended := countFault(&h.mu.Mutex, &h.mu.storeCut)
	h.doubt()
	return func() {
		ended()
		h.doubt()
	}
}

// errFetch is the error of requests for files while failFetches is active.
var errFetch = errors.New("store: internal error of a part of the objects")

// failFetches makes a share of the requests of this server for files and increments fail, until
// the result is called. It learns of new manifests, and serves the files that it has.
func (h *serverHost) failFetches(share float64) (end func()) {
	add := func(share float64) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.mu.fetchesFail += share
	}
	add(share)
	return func() { add(-share) }
}

// denyIncrements makes the store refuse all requests of this server for increments, until the result is
// called. A server that follows them must say so.
func (h *serverHost) denyIncrements() (end func()) {
	ended, began := countFault(&h.mu.Mutex, &h.mu.incrementsDenied), time.Now()
	return func() {
		h.mu.Lock()
		p := h.mu.process
		tried := p != nil && p.server != nil && time.Since(began) > contactTime && time.Since(p.started) > contactTime
		h.mu.Unlock()
		if m := h.manifest(); tried && m != nil && 0 < m.Served && m.Served == m.Target && m.Error == "" {
			h.w.account.wrongf("alerts", "%s cannot read the increments of manifest %d, and does not say so", h.name, m.Served)
		}
		ended()
	}
}

// failObjects makes all requests of this server for a share of the files fail, until the result is
// called: only some files of a manifest arrive.
func (h *serverHost) failObjects(share float64) (end func()) {
	set := func(share float64) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.mu.objectsFail = share
	}
	set(share)
	return func() { set(0) }
}

// beforeRequest is the hook of the server's requests to the store.
func (h *serverHost) beforeRequest(_ context.Context, operation, name string) *bucket.Failure {
	h.mu.Lock()
	share, objects, denied := h.mu.fetchesFail, h.mu.objectsFail, h.mu.incrementsDenied > 0
	h.mu.Unlock()
	if denied && strings.HasPrefix(name, "increment/") {
		return &bucket.Failure{Err: bucket.ErrDenied}
	}
	if d := chance.New(h.w.config.Seed).Next(name); objects > 0 && operation == "get" && strings.HasPrefix(name, "file/") && d.Bool(objects) {
		return &bucket.Failure{Err: errFetch}
	}
	if share == 0 || operation != "get" || !strings.HasPrefix(name, "file/") && !strings.HasPrefix(name, "increment/") {
		return nil
	}
	if d := h.w.chance.Next("fetch of " + h.name); !d.Bool(share) {
		return nil
	}
	return &bucket.Failure{Err: errFetch}
}

// interruptReturn turns the machine off for a time. When it is on again its process learns of new
// manifests, but gets no files, and ends after a time; the next one does not reach the store until
// the result is called.
func (h *serverHost) interruptReturn(off, on time.Duration) (end func()) {
	turnOn, fetch, done := h.turnOff(false), h.failFetches(1), make(chan struct{})
	ctx, cancel := context.WithCancel(h.w.alive)
	h.w.running.Go(func() {
		defer close(done)
		ctxtime.Sleep(ctx, off)
		turnOn()
		if ctxtime.Sleep(ctx, on) {
			heal := h.cutStore()
			h.stop(killed)
			<-ctx.Done()
			heal()
		}
	})
	return func() {
		cancel()
		<-done
		fetch()
	}
}

// replaceInUpload replaces the disk by an empty one. The server starts when the slow ingest host has
// published a manifest of a part of its files, or when the result is called.
func (h *serverHost) replaceInUpload(slow time.Duration) (end func()) {
	u, ended := h.w.ingest(), make(chan struct{})
	before, fast, turnOn := u.partialUploads(), u.slowUploads(slow), h.turnOff(true)
	ctx, cancel := context.WithCancel(h.w.alive)
	h.w.running.Go(func() {
		defer close(ended)
		for u.partialUploads() == before && ctxtime.Sleep(ctx, watchPause) {
		}
		turnOn()
	})
	return func() {
		cancel()
		<-ended
		fast()
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
	ended := countFault(&h.mu.Mutex, &h.mu.isolated)
	h.doubt()
	rejoin := h.host.Isolate()
	return func() {
		rejoin()
		ended()
		h.doubt()
	}
}
