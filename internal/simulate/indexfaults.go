package simulate

import (
	"context"
	"time"

	"docstore/internal/ctxtime"
	"docstore/internal/simulate/chance"
	"docstore/internal/simulate/disk"
)

// maxFlips is the most bits that damage to a table of an index inverts.
const maxFlips = 16

// indexes are faults of the indexes of servers.
var indexes = group{name: "indexes", probability: 0.4, others: []string{"server restart", "server kill"}, kinds: []faultKind{
	{name: "index replaced", server: true, begin: func(w *world, h *serverHost, _ Fault, _ *chance.Draw) func() {
		w.must(h.reindex())
		h.askNearby(true)
		return nil
	}},
	{name: "replaced index stays", server: true, longest: 30 * time.Second, begin: func(w *world, h *serverHost, _ Fault, d *chance.Draw) func() {
		w.must(h.reindex())
		h.askNearby(true)
		time.Sleep(d.Duration(0, 2*time.Second)) // the next index may be there by now
		end, ended := h.disk.FailRemovals(disk.Failure{Pattern: "index-*"}), countFault(&h.mu.Mutex, &h.mu.diskFaults)
		return func() {
			end()
			ended()
			h.stop(killed)
		}
	}},
	{name: "index bit flips", server: true, begin: func(w *world, h *serverHost, _ Fault, d *chance.Draw) func() {
		h.doubt()
		for range 1 + d.Int(maxFlips) {
			name, err := h.disk.FlipBit(dataDir, "*.table")
			w.must(err)
			w.log.add(h.name, "a bit of %q is flipped", name)
		}
		return nil
	}},
}}

// lags are servers that lack the newest entries again and again, while compaction drops documents for
// them.
var lags = group{name: "lags", probability: 0.4, shape: shapeLags, kinds: []faultKind{
	{name: "server store or copy lags", server: true, single: true, longest: 2 * time.Minute, begin: func(w *world, h *serverHost, _ Fault, d *chance.Draw) func() {
		ctx, cancel := context.WithCancel(w.alive)
		done := make(chan struct{})
		w.asking.Go(func() {
			defer close(done)
			for ctx.Err() == nil {
				h.lag(ctx, d)
			}
		})
		return func() {
			cancel()
			<-done
		}
	}},
}}

// shapeLags makes compaction find what it drops, often in copies: they get files in any order.
func shapeLags(c *Config, d *chance.Draw) {
	c.IDs, c.Rate, c.SegmentBytes = 200, 20, 32<<10
	if d.Bool(0.5) {
		c.Copies, c.CopyDeletes = true, d.Bool(0.5)
	}
}

// lag lets the server lack the newest entries for a while, in which the queue is compacted. It gets
// them by a slow disk, or in parts.
func (h *serverHost) lag(ctx context.Context, d *chance.Draw) {
	arrive := h.cutStore
	if h.copier != nil {
		arrive = h.copier.stop
	}
	end := arrive()
	for range d.Between(1, compactions) {
		ctxtime.Sleep(ctx, deleteAfter+d.Duration(time.Second, 3*time.Second))
		h.w.ingest().compact(d.Bool(0.5))
	}
	if h.copier != nil && d.Bool(0.5) {
		h.copier.interrupt(int64(1 + d.Int(40)))
	}
	fast := func() {}
	if d.Bool(0.5) {
		fast = h.slowDisk(d.Duration(time.Millisecond, 30*time.Millisecond))
	}
	end()
	h.askNearby(false)
	ctxtime.Sleep(ctx, d.Duration(time.Second, 5*time.Second))
	fast()
}

// slowestPass is added to a pass of copying: every copy gets a rewrite within deleteAfter.
const slowestPass = deleteAfter - copyPause - time.Second

// rebuilds are servers that lose their index while files are copied to them in any order.
var rebuilds = group{name: "rebuilds", probability: 0.5, alone: true, shape: shapeRebuilds, kinds: []faultKind{
	{name: "index lost while files are copied", server: true, single: true, begin: func(_ *world, h *serverHost, _ Fault, d *chance.Draw) func() {
		h.w.asking.Go(func() { h.rebuildFromCopy(d) })
		return nil
	}},
}}

// shapeRebuilds makes compaction find what it drops.
func shapeRebuilds(c *Config, d *chance.Draw) {
	c.IDs, c.Rate, c.SegmentBytes, c.Copies, c.CopyDeletes = 200, 20, 32<<10, true, d.Bool(0.5)
}

// rebuildFromCopy starts the server without an index while the rewrites of a compaction are copied.
func (h *serverHost) rebuildFromCopy(d *chance.Draw) {
	fast, start := h.copier.slowDown(slowestPass), h.keepOff(killed, true)
	h.w.ingest().compact(d.Bool(0.5))
	ctxtime.Sleep(h.w.alive, d.Duration(copyPause, copyPause+slowestPass))
	start()
	ctxtime.Sleep(h.w.alive, slowestPass)
	fast()
}
