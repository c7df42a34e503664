package simulate

import (
	"context"
	"time"

	"docstore/docservice/placement/etcdmap"
	"docstore/docservice/placement/fleet"
	"docstore/internal/ctxtime"
)

// operate is the operator of a collection of several shards: docserviced placement apply, until
// each shard has a column. Each command is another process: it knows nothing that etcd has lost.
func (w *world) operate(ctx context.Context) {
	for ctx.Err() == nil {
		restored := w.etcd.restored.Load()
		w.withPlacement(func(store *etcdmap.Store) {
			for ctxtime.Sleep(ctx, 2*time.Second) && w.etcd.restored.Load() == restored {
				f, err := fleet.Read(ctx, store)
				if err != nil || len(f.Columns) < w.config.Columns || f.Unplaced == 0 {
					continue
				}
				if plan, err := fleet.Apply(ctx, store, ""); err == nil {
					w.log.add("operator", "applied plan %s", plan.ID)
				}
			}
		})
	}
}

// drain is docserviced placement drain. The result is undrain and apply.
func (w *world) drain(column string) (end func()) {
	var failed error
	w.withPlacement(func(store *etcdmap.Store) {
		ctx, cancel := context.WithTimeout(w.alive, callTime)
		defer cancel()
		_, failed = fleet.Apply(ctx, store, "", column)
		w.log.add("operator", "drain %s: %v", column, failed)
	})
	if failed != nil {
		return nil
	}
	return func() {
		w.withPlacement(func(store *etcdmap.Store) {
			for undrained := false; !undrained && ctxtime.Sleep(w.alive, time.Second); {
				err := fleet.Undrain(w.alive, store, column)
				w.log.add("operator", "undrain %s: %v", column, err)
				undrained = err == nil
			}
			_, err := fleet.Apply(w.alive, store, "")
			w.log.add("operator", "apply: %v", err)
		})
	}
}

// withPlacement calls f with a connection to etcd.
func (w *world) withPlacement(f func(*etcdmap.Store)) {
	store, err := etcdmap.Open(w.etcdAddress(), collectionName, &etcdmap.Options{Dial: w.clients.Dial})
	if err != nil {
		w.must(err)
		return
	}
	f(store)
	_ = store.Close() // etcd may be away
}
