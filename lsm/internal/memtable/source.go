package memtable

import "docstore/lsm/internal/kv"

// flushSource returns the newest version of each key, in key order.
//
// Consecutive keys are scattered in memory, so they are prefetched by the window:
// without that, cache misses took 280 ns per key in a profile of 4 million writes.
type flushSource struct {
	versions *versionMap
	nodes    []orderedNode // not yet returned
	fetched  int           // number of nodes that are prefetched
}

const flushWindow = 64

// SortBytes returns the memory that sorting the keys takes.
func (m *Memtable) SortBytes() int64 { return 2 * orderedNodeBytes * int64(m.count) }

// Source returns the newest version of each key of a sealed memtable.
func (m *Memtable) Source() kv.Source {
	writes := m.lastSequence - m.firstSequence.Load() + 1
	nodes, _ := m.newNodes(make([]orderedNode, 0, m.count), firstRun, writes, m.shared)
	return &flushSource{versions: &m.versionMap, nodes: m.sorted(nodes)}
}

func (s *flushSource) Next(dst []kv.Entry) ([]kv.Entry, error) {
	s.fetch(2 * flushWindow)
	window := s.nodes[:min(flushWindow, len(s.nodes))]
	for _, n := range window {
		s.versions.prefetchNewest(n.node)
	}
	for _, n := range window {
		v := s.versions.newest(n.node)
		dst = append(dst, kv.Entry{Key: s.versions.key(n.node), Value: v.Value, Tombstone: v.Tombstone})
	}
	s.nodes, s.fetched = s.nodes[len(window):], s.fetched-len(window)
	return dst, nil
}

// fetch prefetches the runs of the next count keys.
func (s *flushSource) fetch(count int) {
	for count = min(count, len(s.nodes)); s.fetched < count; s.fetched++ {
		s.versions.prefetch(s.nodes[s.fetched].node)
	}
}
