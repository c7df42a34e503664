package simulate

import (
	"path"
	"time"

	"docstore/internal/ctxtime"
	"docstore/internal/simulate/chance"
	"docstore/internal/vfs"
	"docstore/queue"
)

// forks are restorations of a queue from an older copy. append reads the records after it again, so
// that the copies of servers, and what they have read, belong to another history of the queue.
var forks = group{name: "forks", probability: 0.7, alone: true, shape: shapeTruncations, others: []string{"server restart", "updater restart"}, kinds: []faultKind{
	{name: "queue restored", single: true, longest: 2 * time.Minute, begin: func(w *world, _ *serverHost, _ Fault, d *chance.Draw) func() {
		older, err := w.queueFiles()
		if err != nil {
			return nil // a file was sealed meanwhile
		}
		stay := d.Duration(20*time.Second, 2*time.Minute)
		return func() { w.asking.Go(func() { w.restoreQueue(older, stay) }) }
	}},
}}

// queueFiles returns the files of the queue on the ingest host, by name.
func (w *world) queueFiles() (map[string][]byte, error) {
	fsys, files := w.ingest().disk.Files(), map[string][]byte{}
	names, err := fsys.List(queueDir)
	for _, name := range names {
		if _, ok := queue.ParseFileName(name); err == nil && (ok || name == queue.HeadName) {
			files[name], err = vfs.ReadFile(fsys, path.Join(queueDir, name))
		}
	}
	return files, err
}

// restoreQueue replaces the queue by an older copy. The application waits, so that its log has the
// removed records when append starts again. The servers stay as they are for a time. Then the operator
// removes their copies and indexes.
func (w *world) restoreQueue(older map[string][]byte, stay time.Duration) {
	entries := 0
	w.must(w.app.quiet(func() error {
		if entries = w.account.kept(); len(older) == 0 || w.account.someBack() {
			entries = 0
			return nil
		}
		for w.count() < entries && ctxtime.Sleep(w.alive, settlePoll) {
		}
		defer w.ingest().hold(true)()
		w.goBack(w.servers)
		for _, h := range w.servers {
			h.excuse()
		}
		fsys := w.ingest().disk.Files()
		if err := fsys.RemoveAll(queueDir); err != nil {
			return err
		}
		if err := fsys.MkdirAll(queueDir); err != nil {
			return err
		}
		for name, content := range older {
			if err := vfs.WriteFileAtomic(fsys, path.Join(queueDir, name), content); err != nil {
				return err
			}
		}
		w.account.withdraw(w.count())
		return nil
	}))
	if entries == 0 {
		return
	}
	for until := time.Now().Add(stay); time.Now().Before(until) && ctxtime.Sleep(w.alive, 2*nearTime); {
		for _, h := range w.servers {
			h.excuse()
			h.askNearby(false)
		}
	}
	for _, h := range w.servers {
		h.removeCopy()
	}
	for w.count() < entries && ctxtime.Sleep(w.alive, settlePoll) {
	}
	head, err := queue.ReadHead(w.ingest().disk.Files(), queueDir)
	w.must(err)
	for _, h := range w.servers {
		w.asking.Go(func() { h.awaitPosition(head.End.Next) })
	}
}

// removeCopy removes the copy of the queue and its index, and copies it again.
func (h *serverHost) removeCopy() {
	defer h.copier.stop()()
	defer h.turnOff(true)()
	h.w.must(h.disk.Files().RemoveAll(copyDir))
}
