package simulate

import (
	"sync"

	"docstore/internal/simulate/etcd"
	"docstore/internal/simulate/network"
)

// etcdIP is the address of the machine that runs etcd.
const etcdIP = "10.0.3.1"

// etcdHost is the machine that runs etcd.
type etcdHost struct {
	w       *world
	server  *etcd.Server
	serving sync.WaitGroup
	process *network.Process
}

func newEtcdHost(w *world) *etcdHost { return &etcdHost{w: w, server: etcd.New()} }

// etcdAddress returns the endpoint of etcd; empty: there is none.
func (w *world) etcdAddress() string {
	if w.etcd == nil {
		return ""
	}
	return etcdIP + ":2379"
}

func (h *etcdHost) start() error {
	h.process = h.w.network.Host(etcdIP, "a").Boot()
	l, err := h.process.Listen(h.w.etcdAddress())
	if err != nil {
		return err
	}
	h.serving.Go(func() {
		if err := h.server.Serve(l); err != nil {
			h.w.log.add("etcd", "%v", err)
		}
	})
	return nil
}

// stop stops etcd, which keeps its state.
func (h *etcdHost) stop() {
	h.server.Stop()
	h.process.Kill()
	h.serving.Wait()
}
