package simulate

import (
	"context"
	"slices"
	"sync"
	"time"

	"docstore/boxcarrpc/discovery"
	"docstore/docservice/placement/etcdmap"
	"docstore/internal/simulate/network"
	"docstore/internal/vfs"
)

// changingSource is a registry that front ends watch. Servers leave and join it.
type changingSource struct {
	mu struct {
		sync.Mutex
		servers []*backend // by number; nil: it has left
		away    int        // faults
		changed time.Time
		signal  chan struct{} // closed at a change
	}
}

func newChangingSource(servers []*backend) *changingSource {
	s := &changingSource{}
	s.mu.servers, s.mu.signal = slices.Clone(servers), make(chan struct{})
	return s
}

// Watch implements discovery.Source.
func (s *changingSource) Watch(ctx context.Context, update func(discovery.Snapshot)) error {
	for {
		s.mu.Lock()
		set, away, signal := discovery.Snapshot{Self: -1, Numbers: len(s.mu.servers)}, s.mu.away > 0, s.mu.signal
		for n, b := range s.mu.servers {
			if b != nil {
				set.Servers = append(set.Servers, discovery.Server{Number: n, Address: b.address(), Zone: b.zone})
			}
		}
		s.mu.Unlock()
		if !away {
			update(set)
		}
		select {
		case <-signal:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// has reports whether a server is in the set.
func (s *changingSource) has(b *backend) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.mu.servers, b)
}

// changedSince reports whether the set has changed, or was away, since a time.
func (s *changingSource) changedSince(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.away > 0 || s.mu.changed.After(t)
}

// change makes a change until the result, which makes another one, is called.
func (s *changingSource) change(begin, end func()) func() {
	change := func(f func()) {
		s.mu.Lock()
		defer s.mu.Unlock()
		f()
		s.mu.changed = time.Now()
		close(s.mu.signal)
		s.mu.signal = make(chan struct{})
	}
	change(begin)
	return func() { change(end) }
}

// remove removes a server, until the result is called. The set keeps one.
func (s *changingSource) remove(b *backend) (end func()) {
	n, kept := -1, false
	return s.change(func() {
		kept = len(slices.Compact(slices.Clone(s.mu.servers))) <= 2
		if n = slices.Index(s.mu.servers, b); n >= 0 && !kept {
			s.mu.servers[n] = nil
		}
	}, func() {
		if n >= 0 {
			s.mu.servers[n] = b
		}
	})
}

// takeAway stops updates until the result is called.
func (s *changingSource) takeAway() (end func()) {
	return s.change(func() { s.mu.away++ }, func() { s.mu.away-- })
}

// openStore opens a connection to etcd. files are those of a front end.
func (w *poolWorld) openStore(p *network.Process, files vfs.FS) (*etcdmap.Store, error) {
	o := etcdmap.Options{Dial: p.Dial, FS: vfs.NewMem()}
	if files != nil {
		o.FS = files
		if err := vfs.MakeDir(files, lastServersDir); err != nil {
			return nil, err
		}
	}
	return etcdmap.Open(etcdEndpoint, collectionName, &o)
}
