package simulate

import (
	"context"
	"errors"
	"slices"
	"time"

	"docstore/docservice/server/livepage"
	"docstore/internal/ctxtime"
	"docstore/internal/simulate/chance"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/publish"
)

// The life cycle of manifests: what an operator does with docstore-updater pin, unpin, rollback,
// revert, announce, discard and gc, in a collection of one shard.

const (
	// canaryGroup is the group of every second server.
	canaryGroup = "canary"
	// watchPause is the pause between two looks at a pinned server.
	watchPause = 200 * time.Millisecond
)

var lifeCycle = group{name: "life cycle", probability: 0.3, others: []string{"gc", "server replaced", "server restart", "updater restart"}, kinds: []faultKind{
	{name: "pin", store: true, single: true, longest: time.Minute, begin: func(w *world, _ *serverHost, _ Fault, d *chance.Draw) func() {
		return w.pin([]string{"", canaryGroup}[d.Int(2)], before(uint64(1+d.Int(5))))
	}},
	{name: "rollback", store: true, single: true, begin: func(w *world, _ *serverHost, _ Fault, d *chance.Draw) func() {
		numbers, bad := uint64(1+d.Int(3)), d.Duration(time.Second, 20*time.Second)
		w.asking.Go(func() { w.rollback(numbers, bad) })
		return nil
	}},
	{name: "canary", store: true, single: true, begin: func(w *world, _ *serverHost, _ Fault, _ *chance.Draw) func() {
		w.asking.Go(w.canary)
		return nil
	}},
	{name: "discard", store: true, single: true, begin: func(w *world, _ *serverHost, _ Fault, _ *chance.Draw) func() {
		w.asking.Go(w.discard)
		return nil
	}},
}}

// pins are servers that are pinned while they have a part of the files of a later manifest.
var pins = group{name: "pins", probability: 0.25, alone: true, shape: shapePins, kinds: []faultKind{
	{name: "server off, then pinned", store: true, single: true, longest: 2 * time.Minute, begin: func(w *world, _ *serverHost, _ Fault, d *chance.Draw) func() {
		return w.pinDuringAdvance(w.servers[d.Int(len(w.servers))], d.Duration(10*time.Second, 30*time.Second))
	}},
}}

// shapePins lets servers get many files at a time, each with another version of every id. With increments a
// server would not keep its files when it is pinned.
func shapePins(c *Config, _ *chance.Draw) { c.Increments, c.IDs = false, 20 }

// canary lets the servers of the canary group serve the newest manifest before it is announced.
func (w *world) canary() {
	_ = w.change("canary", func(r publish.Record) (publish.Record, error) { // it may be announced already
		validated, err := r.Validate(r.Head)
		if err != nil {
			return r, err
		}
		return validated.StartCanary(publish.Canary{Group: canaryGroup, To: r.Head, By: "operator"})
	})
}

// group returns the group of a server.
func (h *serverHost) group() string {
	if slices.Index(h.w.servers, h)%2 == 1 {
		return canaryGroup
	}
	return ""
}

// pinned are the servers of a pin, and what they must serve.
type pinned struct {
	servers  []*serverHost
	manifest publish.Ref
	position int // the last one of the manifest; 0: unknown, because compaction has dropped entries
}

// before returns the number that is less than the announced one by some numbers.
func before(numbers uint64) func(announced uint64) uint64 {
	return func(announced uint64) uint64 { return announced - min(numbers, announced-1) }
}

// earlier returns a manifest before the announced one, whose number determines it; false: there is
// none.
func (w *world) earlier(number func(announced uint64) uint64) (p pinned, ok bool) {
	ctx, b := context.Background(), w.store.Objects()
	log, err := publish.OpenLog(ctx, b, time.Now)
	w.must(err)
	record, err := log.Load(ctx)
	w.must(err)
	w.mu.Lock()
	compacted, frozen := w.mu.compacted, w.mu.frozen
	w.mu.Unlock()
	if frozen || record.Frozen || record.Announced.Number < 2 || record.PinOf("") != nil || len(record.Pins) > 0 {
		return p, false
	}
	m, ref, err := publish.FindManifest(ctx, b, number(record.Announced.Number), time.Now)
	if err != nil || record.IsBad(ref.Number) {
		return p, false // gc has collected it
	}
	if p.manifest = ref; compacted {
		return p, true
	}
	w.must(w.scanQueue(queueDir, func(e queue.Entry, _ int) error {
		if e.Address.Compare(m.Heads[0].End.Next) < 0 {
			p.position++
		}
		return nil
	}))
	return p, true
}

// change changes the record as an operator does: a command that fails is repeated. A refused change is an
// error.
func (w *world) change(name string, change func(publish.Record) (publish.Record, error)) error {
	return w.repeat(name, func(ctx context.Context, _ vfs.FS, b bucket.Bucket) error {
		log, err := publish.OpenLog(ctx, b, time.Now)
		if err == nil {
			_, err = log.Update(ctx, change)
		}
		return err
	})
}

// repeat runs a command until it succeeds, or is refused.
func (w *world) repeat(name string, run func(context.Context, vfs.FS, bucket.Bucket) error) error {
	for {
		err := w.ingest().command(name, run)
		if err == nil || errors.Is(err, publish.ErrRefused) {
			return err
		}
		if !ctxtime.Sleep(w.alive, time.Second) {
			return w.alive.Err()
		}
	}
}

// pin pins a group of servers, or all, to an earlier manifest until the result is called.
func (w *world) pin(group string, number func(announced uint64) uint64) (end func()) {
	p, ok := w.earlier(number)
	if !ok {
		return nil
	}
	for _, h := range w.servers {
		if group == "" || h.group() == group {
			p.servers = append(p.servers, h)
		}
	}
	w.goBack(p.servers)
	if w.change("pin", func(r publish.Record) (publish.Record, error) {
		return r.Pin(publish.Pin{Group: group, To: p.manifest, By: "operator"})
	}) != nil {
		w.forward(p.servers)
		return nil
	}
	stop := w.watchPinned(p)
	return func() {
		stop()
		w.verify()
		if _, err := publish.ReadManifest(context.Background(), w.store.Objects(), p.manifest); err != nil {
			w.account.wrongf("bucket", "manifest %d is pinned: %v", p.manifest.Number, err)
		}
		err := w.change("unpin", func(r publish.Record) (publish.Record, error) { return r.Unpin(group, false) })
		if err == nil {
			err = w.announceNewest()
		}
		w.mustUntilEnd(err)
		w.forward(p.servers)
	}
}

const (
	// advanceTime bounds the time until a server fetches a manifest.
	advanceTime = 20 * time.Second
	// advancePause is the time in which some of its files arrive.
	advancePause = 2 * time.Second
	// pinnedTime is the least time for which a server is pinned that has started with these files.
	pinnedTime = 20 * time.Second
)

// pinDuringAdvance pins the manifest that a server serves after it was off for a time, and has fetched a
// part of the files of a later manifest, until the result is called. The server ends with the pin.
func (w *world) pinDuringAdvance(h *serverHost, off time.Duration) (end func()) {
	if h.awaitManifest(func(m *livepage.Manifest) bool { return 0 < m.Served && m.Served == m.Target }) == nil {
		return nil
	}
	defer h.failObjects(0.5)()
	turnOn := h.turnOff(false)
	ctxtime.Sleep(w.alive, off)
	turnOn()
	m := h.awaitManifest(func(m *livepage.Manifest) bool { return 0 < m.Served && m.Served < m.Target })
	if m == nil {
		return nil
	}
	ctxtime.Sleep(w.alive, advancePause)
	unpin := w.pin(h.group(), func(uint64) uint64 { return m.Served })
	h.stop(killed)
	if unpin == nil {
		return nil
	}
	until := time.Now().Add(pinnedTime)
	return func() {
		ctxtime.Sleep(w.alive, time.Until(until))
		unpin()
	}
}

// awaitManifest returns what a server says about its manifest when a condition holds; nil: it did not in
// advanceTime.
func (h *serverHost) awaitManifest(holds func(*livepage.Manifest) bool) *livepage.Manifest {
	for deadline := time.Now().Add(advanceTime); time.Now().Before(deadline) && ctxtime.Sleep(h.w.alive, watchPause); {
		if m := h.manifest(); m != nil && holds(m) {
			return m
		}
	}
	return nil
}

// mustUntilEnd reports an error, unless the world has ended.
func (w *world) mustUntilEnd(err error) {
	if w.alive.Err() == nil {
		w.must(err)
	}
}

// verify is docstore-updater manifests --verify. A commit of the same moment may look like damage.
func (w *world) verify() {
	for range 3 {
		checked, err := publish.Check(context.Background(), w.store.Objects())
		if w.must(err); len(checked.Problems) == 0 {
			return
		}
		w.log.add("operator", "verify: %v", checked.Problems)
		ctxtime.Sleep(w.alive, time.Second)
	}
	w.account.wrongf("bucket", "the chain is damaged while a manifest is pinned")
}

// goBack records that servers may go back to an earlier state.
func (w *world) goBack(servers []*serverHost) {
	for _, h := range servers {
		w.account.goBack(h.name)
	}
}

// forward records for each server when it serves the announced state again.
func (w *world) forward(servers []*serverHost) {
	since := time.Now()
	for _, h := range servers {
		w.running.Go(func() {
			for ctxtime.Sleep(w.alive, watchPause) {
				m := h.manifest()
				if m != nil && m.PinnedBy == "" && m.Served == m.Target && m.Target == m.Announced && m.LastContact != nil && m.LastContact.After(since) {
					w.account.goForward(h.name)
					return
				}
			}
		})
	}
}

// manifest returns what a server says about its manifest; nil: nothing.
func (h *serverHost) manifest() *livepage.Manifest {
	h.mu.Lock()
	p := h.mu.process
	h.mu.Unlock()
	if p == nil || p.server == nil {
		return nil
	}
	held := p.server.Held()
	if len(held) == 0 || len(held[0].Shards()) == 0 {
		return nil
	}
	return held[0].Shards()[0].Manifest
}

// watchPinned compares what servers answer while they serve a pinned manifest with its state, until
// the result is called.
func (w *world) watchPinned(p pinned) (stop func()) {
	ctx, cancel := context.WithCancel(w.alive)
	for _, h := range p.servers {
		w.asking.Go(func() {
			for ctxtime.Sleep(ctx, watchPause) {
				w.askPinned(h, p)
			}
		})
	}
	return cancel
}

// serves reports whether a server says that it serves the pinned manifest, to its end.
func (p pinned) serves(h *serverHost) bool {
	m := h.manifest()
	return m != nil && h.ready() && m.PinnedBy != "" && m.Served == p.manifest.Number && m.Target == p.manifest.Number && m.Increment == 0 && m.Behind == 0
}

// askPinned asks a server for a document, if it serves the pinned manifest.
func (w *world) askPinned(h *serverHost, p pinned) {
	client := w.askers[1+slices.Index(w.servers, h)]
	d := w.chance.Next("ask pinned " + h.name)
	id := client.randomID(&d)
	process := h.current()
	if process == nil || !p.serves(h) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	document, err := client.client.Get(ctx, nil, id)
	if h.current() == process && p.serves(h) && p.position > 0 {
		w.account.pinned(h.name, p.position, id, document, err)
	}
}

// rollback makes all servers serve an earlier manifest, and after a while undoes in the queue what
// came later.
func (w *world) rollback(numbers uint64, bad time.Duration) {
	p, ok := w.earlier(before(numbers))
	if !ok || p.position == 0 {
		return
	}
	p.servers = w.servers
	w.setFrozen(true) // no compaction
	defer w.setFrozen(false)
	w.goBack(p.servers)
	if w.change("rollback", func(r publish.Record) (publish.Record, error) {
		return r.Rollback(publish.Pin{To: p.manifest, By: "operator", Reason: "test"})
	}) != nil {
		w.forward(p.servers) // gc has collected the manifest meanwhile
		return
	}
	stop := w.watchPinned(p)
	ctxtime.Sleep(w.alive, bad)
	err := w.revert(p.manifest.Number)
	if stop(); err == nil {
		err = w.announceNewest()
	}
	w.mustUntilEnd(err)
	w.forward(p.servers)
}

// announceNewest is validate and announce, after which append announces again. If the newest manifest
// was discarded, the operator waits for the next one.
func (w *world) announceNewest() (err error) {
	for range announceAttempts {
		if err = w.change("announce", announceHead); !errors.Is(err, publish.ErrRefused) || !ctxtime.Sleep(w.alive, announcePause) {
			break
		}
	}
	return err
}

const announceAttempts = 10

func announceHead(r publish.Record) (publish.Record, error) {
	if r.Announced == r.Head {
		return r, nil
	}
	validated, err := r.Validate(r.Head)
	if err != nil {
		return r, err
	}
	return validated.Announce(r.Head)
}

func (w *world) setFrozen(frozen bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.frozen = frozen
}

// revert is docstore-updater revert, between two runs of append. The application waits, so that
// records of its log come before or after the undone changes.
func (w *world) revert(to uint64) error {
	return w.app.quiet(func() error {
		w.undoing.Lock()
		defer w.undoing.Unlock()
		before := w.account.count()
		for w.count() < before && ctxtime.Sleep(w.alive, time.Second) {
		}
		defer w.ingest().hold(false)()
		err := w.repeat("revert", func(ctx context.Context, fsys vfs.FS, b bucket.Bucket) error {
			_, err := publish.Revert(ctx, b, queueDir, to, nil, &publish.Options{FS: fsys})
			return err // queue.ErrLocked: append is ending
		})
		n := 0
		return errors.Join(err, w.scanQueue(queueDir, func(e queue.Entry, version int) error {
			if n++; n > before {
				w.account.undone(entry{id: string(e.ID), deleted: e.Deleted, version: version})
			}
			return nil
		}))
	})
}

// count returns the number of entries in the queue.
func (w *world) count() (entries int) {
	w.must(w.scanQueue(queueDir, func(queue.Entry, int) error {
		entries++
		return nil
	}))
	return entries
}

// discard refuses the newest manifest, which is not announced, and removes its entries from the
// queue. append reads them again.
func (w *world) discard() {
	w.undoing.Lock()
	defer w.undoing.Unlock()
	if w.change("refuse", func(r publish.Record) (publish.Record, error) { return r.Refuse(r.Head) }) != nil {
		return // it was announced
	}
	defer w.ingest().hold(false)()
	err := w.repeat("discard", func(ctx context.Context, fsys vfs.FS, b bucket.Bucket) error {
		_, err := publish.Discard(ctx, b, queueDir, 0, &publish.Options{FS: fsys})
		return err
	})
	w.log.add("operator", "discard: %v", err) // it is refused if compaction has dropped versions
}
