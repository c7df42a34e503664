package simulate

import (
	"context"
	"sync"
	"time"

	"docstore/docservice/memcached/memcachedtest"
	"docstore/internal/ctxtime"
	"docstore/internal/simulate/chance"
	"docstore/internal/simulate/network"
	"docstore/internal/simulate/store"
	"docstore/queue/shard"
)

// world is a fleet with its surroundings.
type world struct {
	config  Config
	chance  *chance.Chance
	log     *eventLog
	account *account
	layout  shard.Layout
	network *network.Network
	store   *store.Store
	app     *appLog
	updater *updater
	servers []*serverHost
	clients *network.Process
	cache   *memcachedtest.Memory // nil: servers have none
	etcd    *etcdHost             // nil: there is one shard

	start   time.Time
	alive   context.Context //nolint:containedctx // the lifetime of the world
	end     context.CancelFunc
	running sync.WaitGroup // processes
	asking  sync.WaitGroup // clients

	mu struct {
		sync.Mutex
		storeFaults int // active ones
		compacted   bool
		versions    map[string]int // the last version of each id
	}
}

func newWorld(c Config) (*world, error) {
	w := &world{config: c, chance: chance.New(c.Seed), log: newEventLog(), layout: c.layout(), start: time.Now()}
	w.mu.versions = map[string]int{}
	w.account = newAccount(w.layout.Shards, w.layout.ShardString)
	w.alive, w.end = context.WithCancel(context.Background())
	w.network = network.New(w.chance.Sub("network"))
	w.clients = w.network.Host("10.0.1.1", "a").Boot()
	var err error
	if w.store, err = store.New(w.chance); err != nil {
		return nil, err
	}
	if c.Shards > 1 {
		w.etcd = newEtcdHost(w)
		w.must(w.etcd.start())
	}
	if w.app, err = newAppLog(); err != nil {
		return nil, err
	}
	if c.Cache {
		w.cache = memcachedtest.NewMemory()
		process := w.network.Host(cacheIP, "a").Boot()
		l, err := process.Listen(cacheIP + ":11211")
		if err != nil {
			return nil, err
		}
		w.running.Go(func() { _ = w.cache.Serve(l) }) // until it is closed
		context.AfterFunc(w.alive, process.Kill)
	}
	w.updater = newUpdater(w)
	for i := range c.Servers {
		w.servers = append(w.servers, newServerHost(w, i))
	}
	return w, nil
}

const cacheIP = "10.0.2.1"

func (w *world) cacheAddresses() []string {
	if w.cache == nil {
		return nil
	}
	return []string{cacheIP + ":11211"}
}

// storeIsFine reports whether no fault of the store is active.
func (w *world) storeIsFine() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.storeFaults == 0
}

// storeFault returns the end of a fault of the store that has begun: servers may not reach their
// targets meanwhile.
func (w *world) storeFault(end func()) func() {
	count := func(n int) {
		w.mu.Lock()
		w.mu.storeFaults += n
		w.mu.Unlock()
		for _, h := range w.servers {
			h.doubt()
		}
	}
	count(1)
	return func() {
		end()
		count(-1)
	}
}

// write is the application: it writes records until ctx ends.
func (w *world) write(ctx context.Context) {
	pause := time.Duration(float64(time.Second) / w.config.Rate)
	for ctx.Err() == nil {
		d := w.chance.Next("write")
		id := "doc-" + itoa(d.Int(w.config.IDs))
		deleted, expires := d.Bool(0.15), time.Time{}
		if !deleted && d.Bool(0.05) {
			expires = time.Now().Add(d.Duration(5*time.Second, time.Minute)).Truncate(time.Second)
		}
		var slow time.Duration
		if d.Bool(0.05) {
			slow = d.Duration(time.Millisecond, 300*time.Millisecond)
		}
		w.put(id, deleted, expires, slow)
		if !ctxtime.Sleep(ctx, d.Duration(0, 2*pause)) {
			return
		}
	}
}

// put writes a record; with a pause in the middle of its line.
func (w *world) put(id string, deleted bool, expires time.Time, pause time.Duration) {
	w.mu.Lock()
	w.mu.versions[id]++
	e := entry{id: id, version: w.mu.versions[id], deleted: deleted, expires: expires}
	w.mu.Unlock()
	w.account.wrote(e)
	w.must(w.app.write(e.record()+"\n", pause))
}

// must reports an error of the simulator.
func (w *world) must(err error) {
	if err != nil {
		w.account.wrongf("simulator", "%v", err)
	}
}
