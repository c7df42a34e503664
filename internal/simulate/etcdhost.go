package simulate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"docstore/internal/ctxtime"
	"docstore/internal/simulate/etcd"
	"docstore/internal/simulate/network"
	"docstore/internal/vfs"
	"docstore/queue/bucket"
	"docstore/queue/publish"
)

// etcdIP is the address of the machine that runs etcd.
const etcdIP, etcdEndpoint = "10.0.3.1", etcdIP + ":2379"

// etcdHost is the machine that runs etcd.
type etcdHost struct {
	log     *eventLog
	network *network.Network
	server  *etcd.Server
	serving sync.WaitGroup
	process *network.Process
	// restored counts restorations from a snapshot.
	restored atomic.Int64
}

func newEtcdHost(log *eventLog, n *network.Network) *etcdHost {
	return &etcdHost{log: log, network: n, server: etcd.New()}
}

// etcdAddress returns the endpoint of etcd; empty: there is none.
func (w *world) etcdAddress() string {
	if w.etcd == nil {
		return ""
	}
	return etcdEndpoint
}

func (h *etcdHost) start() error {
	h.process = h.network.Host(etcdIP, "a").Boot()
	l, err := h.process.Listen(etcdEndpoint)
	if err != nil {
		return err
	}
	h.serving.Go(func() {
		if err := h.server.Serve(l); err != nil {
			h.log.add("etcd", "%v", err)
		}
	})
	return nil
}

// stop ends etcd, which keeps its state. Its connections end first: Stop waits for the handlers, and
// those of clients that are cut off would wait for the network.
func (h *etcdHost) stop() {
	h.process.Kill()
	h.server.Stop()
	h.serving.Wait()
}

// restoreEtcd takes a snapshot of etcd. The result restores it, as after the loss of a majority, and
// continues the commits from the bucket. A commit to the lost etcd may reach the bucket after that, as
// the error of append says then: so the operator does it twice.
func (w *world) restoreEtcd() (end func()) {
	snapshot := w.etcd.server.Backup()
	return w.storeFault(func() {
		w.etcd.stop()
		w.etcd.server.Restore(snapshot)
		w.etcd.restored.Add(1)
		w.must(w.etcd.start())
		w.restoreCommits()
		ctxtime.Sleep(w.alive, failTime)
		w.restoreCommits()
	})
}

// restoreCommits is docstore-updater restore --bucket --etcd.
func (w *world) restoreCommits() {
	err := w.repeat("restore", func(ctx context.Context, _ vfs.FS, b bucket.Bucket) error {
		log, err := publish.OpenLog(ctx, b, time.Now)
		if err == nil {
			_, err = log.Restore(ctx)
		}
		return err
	})
	w.log.add("operator", "restore of the commits: %v", err) // it is refused if nothing was lost
}
