package bucketsource

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"docstore/docservice/placement/etcdmap"
	"docstore/docservice/placement/fleet"
	"docstore/docservice/server/fleetview"
)

// fleets reads the states of sharded collections for the fleet page. It connects to etcd when
// a page is first requested.
type fleets struct {
	source *Source

	mu struct {
		sync.Mutex
		stores map[string]*etcdmap.Store
	}
}

// newFleetPage returns the page of the collections in object stores, if there is an etcd.
func (s *Source) newFleetPage() *fleetview.Page {
	s.fleets.source = s
	var names []string
	for _, c := range s.Options().Collections {
		if c.IsURL() && s.options.Etcd != "" {
			names = append(names, c.Name)
		}
	}
	return fleetview.NewPage(names, s.fleets.read, s.Logger())
}

// read implements fleetview.Source.
func (f *fleets) read(ctx context.Context, collection string) (*fleet.Fleet, error) {
	store, err := f.store(collection)
	if err != nil {
		return nil, err
	}
	state, err := fleet.Read(ctx, store)
	if errors.Is(err, etcdmap.ErrNoMap) {
		return nil, fmt.Errorf("collection %s has no placement: it is not sharded, or no daemon with --column has started", collection)
	}
	return state, err
}

func (f *fleets) store(collection string) (*etcdmap.Store, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if store := f.mu.stores[collection]; store != nil {
		return store, nil
	}
	store, err := etcdmap.Open(f.source.options.Etcd, collection, &etcdmap.Options{Dial: f.source.Options().Host.Dial, Observe: f.source.etcd.Observe, Logger: f.source.Logger()})
	if err != nil {
		return nil, err
	}
	if f.mu.stores == nil {
		f.mu.stores = map[string]*etcdmap.Store{}
	}
	f.mu.stores[collection] = store
	return store, nil
}

// close closes the connections, after the listener of HTTP.
func (f *fleets) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, store := range f.mu.stores {
		errs = append(errs, store.Close())
	}
	f.mu.stores = nil
	return errors.Join(errs...)
}
