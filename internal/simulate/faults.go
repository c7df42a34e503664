package simulate

import (
	"cmp"
	"path"
	"slices"
	"sync"
	"time"

	"docstore/internal/ctxtime"
	"docstore/internal/simulate/chance"
	"docstore/internal/simulate/disk"
	"docstore/internal/simulate/network"
)

// faultKind is a kind of fault. begin begins one, and returns how it ends; nil: at once.
type faultKind struct {
	name    string
	server  bool          // the target is a server
	etcd    bool          // it needs an etcd
	store   bool          // it needs an object store
	copies  bool          // it needs copies of the queue
	cache   bool          // it needs a memcached
	single  bool          // it needs a collection of one shard
	longest time.Duration // the longest duration; 0: it has none
	files   []string      // patterns of the files that it may concern; nil: it concerns none
	begin   func(w *world, h *serverHost, f Fault, d *chance.Draw) (end func())
}

// faultKinds are the kinds that schedules are drawn from. Those of groups are in addition.
var faultKinds = []faultKind{
	{name: "server restart", server: true, begin: func(_ *world, h *serverHost, _ Fault, _ *chance.Draw) func() {
		h.stop(stopped)
		return nil
	}},
	{name: "server kill", server: true, begin: func(_ *world, h *serverHost, _ Fault, _ *chance.Draw) func() {
		h.stop(killed)
		return nil
	}},
	{name: "server power cut", server: true, begin: func(_ *world, h *serverHost, _ Fault, _ *chance.Draw) func() {
		h.stop(powerCut)
		return nil
	}},
	returnInterrupted,
	{name: "server off", server: true, longest: 2 * time.Minute, begin: func(_ *world, h *serverHost, _ Fault, _ *chance.Draw) func() {
		return h.turnOff(false)
	}},
	{name: "server replaced", server: true, longest: time.Minute, begin: func(_ *world, h *serverHost, _ Fault, _ *chance.Draw) func() {
		return h.turnOff(true)
	}},
	{name: "server crash in an operation", server: true, begin: func(_ *world, h *serverHost, _ Fault, d *chance.Draw) func() {
		h.crashAt(int64(1+d.Int(200)), d.Bool(0.5))
		return nil
	}},
	{name: "server disk full", server: true, longest: time.Minute, begin: func(w *world, h *serverHost, _ Fault, d *chance.Draw) func() {
		end, err := h.disk.Full(int64(d.Int(256 << 10)))
		w.must(err)
		return h.doubtful(end)
	}},
	{name: "server without inodes", server: true, longest: 20 * time.Second, begin: func(_ *world, h *serverHost, _ Fault, _ *chance.Draw) func() {
		return h.doubtful(h.disk.NoInodes())
	}},
	{name: "server writes fail", server: true, longest: 20 * time.Second, files: serverFiles, begin: func(_ *world, h *serverHost, f Fault, d *chance.Draw) func() {
		return h.doubtful(h.disk.FailWrites(disk.Failure{Pattern: f.Files, Probability: []float64{0.01, 0.2, 1}[d.Int(3)]}))
	}},
	{name: "server syncs fail", server: true, longest: 20 * time.Second, files: serverFiles, begin: func(_ *world, h *serverHost, f Fault, d *chance.Draw) func() {
		return h.doubtful(h.disk.FailSyncs(disk.Failure{Pattern: f.Files, Probability: []float64{0.01, 0.2, 1}[d.Int(3)]}))
	}},
	{name: "server reads fail", server: true, longest: 20 * time.Second, files: serverFiles, begin: func(_ *world, h *serverHost, f Fault, _ *chance.Draw) func() {
		return h.doubtful(h.disk.FailReads(disk.Failure{Pattern: f.Files}))
	}},
	{name: "server disk slow", server: true, longest: time.Minute, begin: func(_ *world, h *serverHost, _ Fault, d *chance.Draw) func() {
		return h.slowDisk(d.Duration(time.Millisecond, 50*time.Millisecond))
	}},
	{name: "server disk stalls", server: true, longest: 20 * time.Second, begin: func(_ *world, h *serverHost, _ Fault, _ *chance.Draw) func() {
		return h.doubtful(h.disk.Stall())
	}},
	{name: "server bit flip", server: true, files: serverFiles, begin: func(w *world, h *serverHost, f Fault, _ *chance.Draw) func() {
		h.doubt()
		name, err := h.disk.FlipBit(dataDir, cmp.Or(f.Files, "*"))
		w.must(err)
		w.log.add(h.name, "a bit of %q is flipped", name)
		if base := path.Base(name); base == "CURRENT" || base == "MANIFEST" || path.Ext(base) == ".log" {
			h.loseState() // a record of a log that was not synced may be one that a crash has cut
		}
		return nil
	}},
	{name: "server reindex", server: true, begin: func(w *world, h *serverHost, _ Fault, _ *chance.Draw) func() {
		w.must(h.reindex())
		return nil
	}},
	{name: "server isolated", server: true, longest: time.Minute, begin: func(_ *world, h *serverHost, _ Fault, _ *chance.Draw) func() {
		return h.isolate()
	}},
	{name: "server without store", server: true, store: true, longest: time.Minute, begin: func(_ *world, h *serverHost, _ Fault, _ *chance.Draw) func() {
		return h.cutStore()
	}},
	{name: "server fetches fail", server: true, store: true, longest: 2 * time.Minute, begin: func(_ *world, h *serverHost, _ Fault, d *chance.Draw) func() {
		return h.failFetches(drawFetches(d))
	}},
	{name: "server silent", server: true, longest: time.Minute, begin: func(_ *world, h *serverHost, _ Fault, _ *chance.Draw) func() {
		return h.host.Silence()
	}},
	{name: "server connections reset", server: true, begin: func(_ *world, h *serverHost, _ Fault, _ *chance.Draw) func() {
		if p := h.current(); p != nil {
			p.net.Reset()
		}
		return nil
	}},
	{name: "server link slow", server: true, longest: time.Minute, begin: func(_ *world, h *serverHost, _ Fault, d *chance.Draw) func() {
		return h.host.Slow(d.Duration(time.Millisecond, 300*time.Millisecond))
	}},
	{name: "zone partition", longest: time.Minute, begin: func(w *world, _ *serverHost, _ Fault, _ *chance.Draw) func() {
		in, out := w.network.Cut(network.Zone("a"), network.Zone("b")), w.network.Cut(network.Zone("b"), network.Zone("a"))
		return func() { in(); out() }
	}},
	{name: "store away", store: true, longest: time.Minute, begin: func(w *world, _ *serverHost, _ Fault, _ *chance.Draw) func() {
		return w.storeFault(w.store.Away())
	}},
	{name: "store hangs", store: true, longest: time.Minute, begin: func(w *world, _ *serverHost, _ Fault, _ *chance.Draw) func() {
		return w.storeFault(w.store.Hang())
	}},
	{name: "store requests fail", store: true, longest: time.Minute, begin: func(w *world, _ *serverHost, _ Fault, d *chance.Draw) func() {
		share := func() float64 { return []float64{0, 0.2, 0.5}[d.Int(3)] }
		return w.storeFault(w.store.Fail(share(), share(), share()))
	}},
	{name: "store executes puts late", store: true, longest: time.Minute, begin: func(w *world, _ *serverHost, _ Fault, _ *chance.Draw) func() {
		return w.storeFault(w.store.LatePuts(0.2))
	}},
	{name: "store slow", store: true, longest: time.Minute, begin: func(w *world, _ *serverHost, _ Fault, d *chance.Draw) func() {
		return w.storeFault(w.store.Slow(d.Duration(50*time.Millisecond, 3*time.Second)))
	}},
	{name: "updater restart", begin: func(w *world, _ *serverHost, _ Fault, _ *chance.Draw) func() {
		w.ingest().stop(false)
		return nil
	}},
	{name: "updater kill", begin: func(w *world, _ *serverHost, _ Fault, _ *chance.Draw) func() {
		w.ingest().stop(true)
		return nil
	}},
	{name: "log rotation", begin: func(w *world, _ *serverHost, _ Fault, _ *chance.Draw) func() {
		w.must(w.app.rotate())
		return nil
	}},
	{name: "compaction", begin: func(w *world, _ *serverHost, _ Fault, d *chance.Draw) func() {
		erase := d.Bool(0.5)
		w.running.Go(func() {
			for range compactions { // later ones drop the deletes of documents that earlier ones dropped
				w.ingest().compact(erase)
				if !ctxtime.Sleep(w.alive, deleteAfter+time.Second) {
					return
				}
			}
		})
		return nil
	}},
	{name: "etcd away", etcd: true, longest: time.Minute, begin: func(w *world, _ *serverHost, _ Fault, _ *chance.Draw) func() {
		w.etcd.stop()
		return w.storeFault(func() { w.must(w.etcd.start()) })
	}},
	{name: "etcd isolated", etcd: true, longest: time.Minute, begin: func(w *world, _ *serverHost, _ Fault, _ *chance.Draw) func() {
		return w.storeFault(w.network.Host(etcdIP, "a").Isolate())
	}},
	{name: "etcd compaction", etcd: true, begin: func(w *world, _ *serverHost, _ Fault, _ *chance.Draw) func() {
		w.etcd.server.Compact()
		return nil
	}},
	{name: "column drained", etcd: true, longest: 2 * time.Minute, begin: func(w *world, _ *serverHost, _ Fault, d *chance.Draw) func() {
		return w.drain(w.config.columnOf(d.Int(w.config.Servers)))
	}},
	{name: "copying stops", server: true, copies: true, longest: time.Minute, begin: func(_ *world, h *serverHost, _ Fault, _ *chance.Draw) func() {
		return h.copier.stop()
	}},
	{name: "copying interrupted", server: true, copies: true, begin: func(_ *world, h *serverHost, _ Fault, d *chance.Draw) func() {
		h.copier.interrupt(int64(1 + d.Int(40)))
		return nil
	}},
	{name: "copy bit flip", server: true, copies: true, begin: func(w *world, h *serverHost, _ Fault, _ *chance.Draw) func() {
		h.doubt()
		name, err := h.disk.FlipBit(copyDir, "*.seg")
		w.must(err)
		w.log.add(h.name, "a bit of %q is flipped", name)
		return nil
	}},
	{name: "gc", store: true, begin: func(w *world, _ *serverHost, _ Fault, _ *chance.Draw) func() {
		w.running.Go(w.ingest().gc)
		return nil
	}},
}

// returnInterrupted is a server that is away, learns what was announced, and restarts before it has it.
var returnInterrupted = faultKind{
	name: "server return interrupted", server: true, store: true, longest: 3 * time.Minute, begin: func(_ *world, h *serverHost, _ Fault, d *chance.Draw) func() {
		return h.interruptReturn(d.Duration(5*time.Second, 20*time.Second), d.Duration(learnTime, 4*learnTime))
	},
}

// drawFetches draws the share of the fetches that fail.
func drawFetches(d *chance.Draw) float64 { return []float64{0.5, 1}[d.Int(2)] }

// compactions is how often compact runs in a row.
const compactions = 4

// serverFiles are patterns of the files of a server: all, segments, tables, and single ones.
var serverFiles = []string{"*", "*.seg", "*.table", "MANIFEST", "CURRENT", "SERVING"}

// themes are kinds that have an effect together.
var themes = [][]string{
	{"server off", "compaction", "server disk slow"},
	{"server off", "compaction", "gc", "server kill"},
	{"server off", "server replaced", "store slow", "store requests fail"},
	{"server power cut", "server syncs fail", "server crash in an operation"},
	{"server bit flip", "server restart", "store away"},
	{"server bit flip", "server reindex", "server disk slow", "server kill", "server crash in an operation"},
	{"updater kill", "log rotation", "store requests fail"},
	{"server without store", "server kill", "compaction"},
	{"server return interrupted", "compaction", "server kill"},
	{"server off", "server fetches fail", "compaction", "server kill"},
	{"compaction", "gc", "updater kill"},
	{"column drained", "etcd away", "server kill"},
}

// maxFaults is the most faults of a schedule.
const maxFaults = 24

// possible reports whether the fleet of a configuration can have the fault.
func (k faultKind) possible(c Config) bool {
	return (!k.etcd || c.Shards > 1) && (!k.store || !c.Copies) && (!k.copies || c.Copies) && (!k.cache || c.Cache) && (!k.single || c.Shards == 0)
}

// drawFaults draws a schedule. A run has few kinds, so that faults of one kind meet often.
func drawFaults(d *chance.Draw, c *Config) (faults []Fault) {
	var kinds []faultKind
	if d.Bool(0.5) {
		theme := themes[d.Int(len(themes))]
		kinds = slices.DeleteFunc(slices.Clone(faultKinds), func(k faultKind) bool { return !slices.Contains(theme, k.name) })
	}
	for range d.Int(6) {
		kinds = append(kinds, faultKinds[d.Int(len(faultKinds))])
	}
	kinds = slices.DeleteFunc(kinds, func(k faultKind) bool { return !k.possible(*c) })
	faults = drawSchedule(d, *c, kinds, maxFaults)
	if c.Destructive {
		kinds = slices.Concat(faultKinds, destructiveKinds, destructiveKinds)
		faults = drawSchedule(d, *c, slices.DeleteFunc(kinds, func(k faultKind) bool { return !k.possible(*c) }), maxDestructive)
	}
	if !c.Destructive {
		faults = drawGroup(c, faults)
	}
	slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return faults
}

// drawSchedule draws faults of some kinds.
func drawSchedule(d *chance.Draw, c Config, kinds []faultKind, most int) (faults []Fault) {
	if len(kinds) == 0 {
		return nil
	}
	for range d.Int(most + 1) {
		k := kinds[d.Int(len(kinds))]
		f := Fault{At: d.Duration(0, c.Work), Kind: k.name, Draw: d.Uint64()}
		if k.server {
			f.Target = "server-" + itoa(d.Int(c.Servers))
		}
		if k.longest > 0 {
			f.For = d.Duration(time.Second, k.longest)
		}
		if k.files != nil {
			f.Files = k.files[d.Int(len(k.files))]
		}
		faults = append(faults, f)
	}
	return arrange(faults)
}

// arrange sorts the faults by time, and drops those that begin while they are active.
func arrange(faults []Fault) []Fault {
	slices.SortFunc(faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	all := slices.Clone(faults)
	return slices.DeleteFunc(faults, func(f Fault) bool {
		return slices.ContainsFunc(all, func(other Fault) bool { // still active
			return other.Kind == f.Kind && other.Target == f.Target && other.At < f.At && other.At+other.For >= f.At
		})
	})
}

// inject begins and ends the faults of the schedule.
func (w *world) inject() {
	runFaults(w.config.Faults, w.start, w.log, &w.asking, func(f Fault) func() {
		k := kindOf(f.Kind)
		d := chance.New(f.Draw).Next(f.Kind)
		return k.begin(w, w.host(f.Target), f, &d)
	})
}

// runFaults begins and ends faults at their times. active counts those that have not ended. A fault
// whose beginning takes a while, such as a command of the operator, does not delay the others.
func runFaults(faults []Fault, start time.Time, log *eventLog, active *sync.WaitGroup, begin func(Fault) (end func())) {
	for _, f := range faults {
		active.Go(func() {
			time.Sleep(time.Until(start.Add(f.At)))
			log.add("fault", "%v", f)
			if end := begin(f); end != nil {
				time.Sleep(time.Until(start.Add(f.At + f.For)))
				end()
				log.add("fault", "ended: %s %s", f.Kind, f.Target)
			}
		})
	}
}

// countFault adds 1 to the number of active faults, which mu guards, until the result is called.
func countFault(mu *sync.Mutex, active *int) (ended func()) {
	count := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		*active += n
	}
	count(1)
	return func() { count(-1) }
}

// host returns the server of a name, nil if there is none.
func (w *world) host(name string) *serverHost {
	for _, h := range w.servers {
		if h.name == name {
			return h
		}
	}
	return nil
}
