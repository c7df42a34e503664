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
	config   Config
	chance   *chance.Chance
	log      *eventLog
	account  *account
	layout   shard.Layout
	network  *network.Network
	store    *store.Store
	app      *appLog
	updaters [2]*updater // the second one is a spare
	servers  []*serverHost
	clients  *network.Process
	askers   []*client             // of all servers, and of each one
	probers  []*prober             // of each server
	cache    *memcachedtest.Memory // nil: servers have none
	etcd     *etcdHost             // nil: there is one shard
	access   *access               // nil: servers accept all clients, in plain text

	start    time.Time
	watching sync.Once // see takeOver

	alive   context.Context //nolint:containedctx // the lifetime of the world
	end     context.CancelFunc
	busy    context.Context //nolint:containedctx // until the clients ask no more
	quiet   context.CancelFunc
	running sync.WaitGroup // processes
	asking  sync.WaitGroup // clients
	undoing sync.Mutex     // held while an operator reverts or discards: operators do one after the other

	mu struct {
		sync.Mutex
		storeFaults int // active ones
		// storeDamaged: a bit of a commit or manifest was flipped, so servers may not learn the announced manifest.
		storeDamaged bool
		partial      time.Time // when a shard was last seen to be served by no server that clients know
		compacted    bool
		erased       bool                          // compaction has erased documents
		frozen       bool                          // a rollback has not ended
		ingest       *updater                      // that is to publish
		versions     map[string]int                // the last version of each id
		scrapes      map[string]map[string]float64 // the last metrics of each server
	}
}

func newWorld(c Config) (*world, error) {
	w := &world{config: c, chance: chance.New(c.Seed), log: newEventLog(), layout: c.layout(), start: time.Now()}
	w.mu.versions, w.mu.scrapes = map[string]int{}, map[string]map[string]float64{}
	w.account = newAccount(c, w.layout.Shards, w.layout.ShardString)
	w.alive, w.end = context.WithCancel(context.Background())
	w.busy, w.quiet = context.WithCancel(w.alive)
	w.network = network.New(w.chance.Sub("network"))
	w.clients = w.network.Host("10.0.1.1", "a").Boot()
	var err error
	if w.store, err = store.New(w.chance); err != nil {
		return nil, err
	}
	if c.Secure {
		if w.access, err = newAccess(w); err != nil {
			return nil, err
		}
	}
	if c.Shards > 1 {
		w.etcd = newEtcdHost(w.log, w.network)
		w.must(w.etcd.start())
	}
	if w.app, err = newAppLog(w.account); err != nil {
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
	w.updaters = [2]*updater{newUpdater(w, "ingest", "10.0.4.1"), newUpdater(w, "ingest-2", "10.0.4.2")}
	w.mu.ingest, w.updaters[1].mu.off = w.updaters[0], true
	w.app.isRead = func(place string) bool { return w.ingest().hasRead(place) }
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

// storeIsFine reports whether no fault of the store is active, and what servers read there is sound.
func (w *world) storeIsFine() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.storeFaults == 0 && !w.mu.storeDamaged
}

// hasCompacted reports whether compact has run.
func (w *world) hasCompacted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.compacted
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
		id, deleted, expires := w.drawRecord(&d)
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

// retired returns how many ids the application writes no more. It begins with the lower half of the
// ids and ends with the upper half, so that deletes are the last records of some ids.
func (w *world) retired() int {
	return int(float64(w.config.IDs/2) * min(1, time.Since(w.start).Seconds()/w.config.Work.Seconds()))
}

// drawRecord draws a document or a delete.
func (w *world) drawRecord(d *chance.Draw) (id string, deleted bool, expires time.Time) {
	id, deleted = "doc-"+itoa(w.retired()+d.Int(w.config.IDs/2)), d.Bool(0.15)
	if !deleted && d.Bool(0.05) {
		expires = time.Now().Add(d.Duration(5*time.Second, time.Minute)).Truncate(time.Second)
	}
	return id, deleted, expires
}

// setBack truncates the log to a share of its records. On the next instant the application may
// write more than was lost: overtake. With down, append does not run until the result is called.
func (w *world) setBack(share float64, overtake, down bool, d *chance.Draw) (end func()) {
	lost := 0
	truncated, err := w.app.truncate(func(entries int) int {
		left := int(share * float64(entries))
		lost = entries - left
		return left
	}, func() {
		if down {
			end = w.ingest().hold(d.Bool(0.5))
		}
	})
	w.must(err)
	w.log.add("world", "the log was truncated: %v, by %d records", truncated, lost)
	for range 2 * lost {
		if overtake {
			id, deleted, expires := w.drawRecord(d)
			w.put(id, deleted, expires, 0)
		}
	}
	return end
}

// put writes a record; with a pause in the middle of its line.
func (w *world) put(id string, deleted bool, expires time.Time, pause time.Duration) {
	w.mu.Lock()
	w.mu.versions[id]++
	e := entry{id: id, version: w.mu.versions[id], deleted: deleted, expires: expires, large: w.config.Large}
	w.mu.Unlock()
	e.line = e.record()
	w.must(w.app.write(e, pause))
}

// must reports an error of the simulator.
func (w *world) must(err error) {
	if err != nil {
		w.account.wrongf("simulator", "%v", err)
	}
}
