package simulate

import (
	"context"
	"strings"

	"docstore/docservice/collection"
	"docstore/internal/ctxtime"
	"docstore/internal/simulate/chance"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/maintain"
)

// truncations are removals of the newest entries of a queue that is copied, after which append reads
// the same records again.
var truncations = group{name: "truncations", probability: 0.7, alone: true, shape: shapeTruncations, others: []string{"server restart", "updater restart"}, kinds: []faultKind{
	{name: "queue truncated", single: true, begin: func(w *world, _ *serverHost, _ Fault, d *chance.Draw) func() {
		share := []float64{0.1, 0.5, 0.9}[d.Int(3)]
		w.asking.Go(func() { w.truncateQueue(share) })
		return nil
	}},
}}

// shapeTruncations makes servers serve copies, and share a memcached.
func shapeTruncations(c *Config, d *chance.Draw) {
	c.Copies, c.CopyDeletes, c.Cache = true, d.Bool(0.5), true
}

// truncateQueue is docstore-updater truncate, which leaves about a share of the queue. The application
// waits, so that its log has the removed records when append starts again. The operator waits until the
// servers have followed the last one.
func (w *world) truncateQueue(share float64) {
	w.must(w.app.quiet(func() error {
		entries := w.account.kept()
		for w.count() < entries && ctxtime.Sleep(w.alive, settlePoll) {
		}
		defer w.ingest().hold(false)()
		n, from := 0, queue.Address{}
		err := w.scanQueue(queueDir, func(e queue.Entry, _ int) error {
			if float64(n) >= share*float64(entries) && e.Address.Index == 0 && from.IsZero() {
				from = e.Address // append continues after a whole block
			}
			n++
			return nil
		})
		if err != nil || from.IsZero() || n < entries || w.account.someBack() {
			return err
		}
		w.goBack(w.servers)
		var report maintain.TruncateReport
		err = w.repeat("truncate", func(ctx context.Context, fsys vfs.FS, _ bucket.Bucket) (err error) {
			report, err = maintain.Truncate(ctx, queueDir, from, &maintain.TruncateOptions{FS: fsys})
			return err // queue.ErrLocked: append is ending
		})
		if err != nil {
			return err
		}
		w.account.withdraw(w.count())
		for _, h := range w.servers {
			h.excuse()
			w.running.Go(func() { h.awaitPosition(report.To) })
			h.askNearby(true)
		}
		return nil
	}))
}

// awaitPosition waits until the server is ready with all entries before an address.
func (h *serverHost) awaitPosition(end queue.Address) {
	for ctxtime.Sleep(h.w.alive, watchPause) {
		s := h.started()
		if s == nil {
			continue
		}
		if c := s.Collection(collectionName); c != nil && c.Ready() && c.Status().Position.Next.Compare(end) >= 0 {
			h.w.account.goForward(h.name)
			return
		}
	}
}

// knowsTruncation reports whether the collection says that its index has truncated entries.
func knowsTruncation(c *collection.Collection) bool { return isNotReady(c, "truncated") }

// knowsFork reports whether the collection says that its index has another history than the queue.
func knowsFork(c *collection.Collection) bool { return isNotReady(c, "different histories") }

// isNotReady reports whether the collection is not ready for a reason with some words.
func isNotReady(c *collection.Collection, words string) bool {
	return !c.Ready() && strings.Contains(c.Status().Index.Cause, words)
}

// someBack reports whether a server may go back to an earlier state.
func (a *account) someBack() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, v := range a.mu.views {
		if v.backs > 0 {
			return true
		}
	}
	return false
}

// kept returns the number of entries that were not withdrawn.
func (a *account) kept() (entries int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.mu.entries[1:] {
		if e.withdrawn == 0 {
			entries++
		}
	}
	return entries
}

// withdraw records that all but the first of the kept entries were removed from the queue, and are
// appended again.
func (a *account) withdraw(left int) {
	a.mu.Lock()
	a.mu.withdrawals++
	var again []entry
	for i := range a.mu.entries[1:] {
		e := &a.mu.entries[1+i]
		if e.withdrawn > 0 {
			continue
		}
		if left--; left < 0 {
			again = append(again, *e)
			e.withdrawn = a.mu.withdrawals
		}
	}
	a.mu.Unlock()
	for _, e := range again {
		a.wrote(e)
	}
}

// servedWithdrawn judges the document of a server that knows that its entries were removed.
func (a *account) servedWithdrawn(server, id string, document []byte) {
	version, err := parseDocument(id, document)
	if err != nil {
		return // see found
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.mu.of[id] {
		if e := a.mu.entries[p]; e.version == version && e.withdrawn == a.mu.withdrawals {
			a.addWrong("withdrawn", "%s returned version %d of %s, which it knows to be truncated", server, version, id)
			return
		}
	}
}
