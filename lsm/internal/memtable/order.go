package memtable

import (
	"bytes"
	"slices"
	"sort"
	"sync"

	"docstore/lsm/internal/kv"
)

// order is the sorted order of a memtable's keys. It is computed when an
// iterator needs it: the keys added since the last time become a sorted run, which is
// merged with runs that are not larger. So the number of runs, and the number of merges
// of each key, is at most about log2(keys), however often iterators are created.
//
// Runs are immutable and have no key in common.
type order struct {
	sync.Mutex                 // for the creation of iterators; writers and lookups do not take it
	next       ref             // end of the sorted part
	writes     uint64          // number of writes in the sorted part
	runs       [][]orderedNode // larger ones first
}

// orderedNode is a key of the versionMap and its prefix after the common prefix.
type orderedNode struct {
	prefix uint64
	node   ref
}

// newNodes appends the keys in the given number of runs from a ref on to nodes,
// unordered, and returns the ref after them. All these runs must be visible. Prefixes
// are taken after skip bytes, which all keys share.
func (m *versionMap) newNodes(nodes []orderedNode, from ref, runs uint64, skip int) (all []orderedNode, next ref) {
	for range runs {
		version := from + 4
		if m.word(from).Load() != laterVersion {
			key := m.key(from)
			nodes = append(nodes, orderedNode{kv.Prefix(key[skip:]), from})
			version += ref(4 + len(key))
		}
		from = ref(runEnd(version, len(m.version(version).Value)))
	}
	return nodes, from
}

// sorted sorts nodes by key.
func (m *versionMap) sorted(nodes []orderedNode) []orderedNode {
	sortByPrefix(nodes)
	for begin := 0; begin < len(nodes); {
		end := begin + 1
		for end < len(nodes) && nodes[end].prefix == nodes[begin].prefix {
			end++
		}
		if end-begin > 1 {
			slices.SortFunc(nodes[begin:end], func(a, b orderedNode) int {
				return bytes.Compare(m.key(a.node), m.key(b.node))
			})
		}
		begin = end
	}
	return nodes
}

// before orders nodes by key.
func (m *versionMap) before(a, b orderedNode) bool {
	if a.prefix != b.prefix {
		return a.prefix < b.prefix
	}
	return bytes.Compare(m.key(a.node), m.key(b.node)) < 0
}

// runs returns sorted runs with all keys visible at a sequence number, which must not
// exceed that of the newest visible write.
func (m *Memtable) runs(sequence uint64) [][]orderedNode {
	o := &m.order
	o.Lock()
	defer o.Unlock()
	if sealed := m.sealed.Load(); sealed != 0 {
		sequence = min(sequence, sealed)
	}
	first := m.firstSequence.Load()
	if first == 0 || sequence < first+o.writes {
		return o.runs
	}
	fresh, next := m.newNodes(nil, max(o.next, firstRun), sequence-first+1-o.writes, 0)
	o.next, o.writes = next, sequence-first+1
	if len(fresh) == 0 {
		return o.runs
	}
	m.grow(len(fresh) * orderedNodeBytes)
	run := m.sorted(fresh)
	keep := len(o.runs)
	for ; keep > 0 && len(o.runs[keep-1]) <= 2*len(run); keep-- {
		run = m.mergeRuns(o.runs[keep-1], run)
	}
	o.runs = append(slices.Clone(o.runs[:keep]), run) // iterators have the old list
	return o.runs
}

const orderedNodeBytes = 16

func (m *versionMap) mergeRuns(a, b []orderedNode) []orderedNode {
	merged := make([]orderedNode, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if m.before(b[0], a[0]) {
			merged, b = append(merged, b[0]), b[1:]
		} else {
			merged, a = append(merged, a[0]), a[1:]
		}
	}
	return append(append(merged, a...), b...)
}

// Iterators returns iterators that together cover the keys of a memtable at a sequence
// number.
func (m *Memtable) Iterators(sequence uint64) []kv.Iterator {
	var its []kv.Iterator
	for _, run := range m.runs(sequence) {
		its = append(its, &runIterator{versions: &m.versionMap, nodes: run, sequence: sequence, at: -1})
	}
	return its
}

// runIterator iterates over the keys of a run at a sequence number.
type runIterator struct {
	versions *versionMap
	nodes    []orderedNode
	sequence uint64
	at       int // current node; before or after all if there is none
	current  kv.Entry
}

func (it *runIterator) First() bool { return it.forward(0) }
func (it *runIterator) Last() bool  { return it.backward(len(it.nodes) - 1) }

func (it *runIterator) SeekGE(key []byte) bool { return it.forward(it.search(key)) }
func (it *runIterator) SeekLT(key []byte) bool { return it.backward(it.search(key) - 1) }

func (it *runIterator) Next() bool { return it.forward(it.at + 1) }
func (it *runIterator) Prev() bool { return it.backward(it.at - 1) }

// search returns the index of the first node with a key of at least key.
func (it *runIterator) search(key []byte) int {
	prefix := kv.Prefix(key)
	return sort.Search(len(it.nodes), func(i int) bool {
		n := it.nodes[i]
		if n.prefix != prefix {
			return n.prefix > prefix
		}
		return bytes.Compare(it.versions.key(n.node), key) >= 0
	})
}

// forward moves to the first node from at on that has a visible version.
func (it *runIterator) forward(at int) bool {
	for ; at < len(it.nodes); at++ {
		if it.show(at) {
			return true
		}
	}
	it.at = len(it.nodes)
	return false
}

func (it *runIterator) backward(at int) bool {
	for ; at >= 0; at-- {
		if it.show(at) {
			return true
		}
	}
	it.at = -1
	return false
}

// show moves to a node if it has a visible version.
func (it *runIterator) show(at int) bool {
	node := it.nodes[at].node
	v, ok := it.versions.versionAt(node, it.sequence)
	if ok {
		it.at, it.current = at, kv.Entry{Key: it.versions.key(node), Value: v.Value, Tombstone: v.Tombstone}
	}
	return ok
}

// Prefetching is impossible in a binary search: each step depends on the previous one.
func (it *runIterator) PrefetchIndex([]byte) {}
func (it *runIterator) PrefetchBlock([]byte) {}

func (it *runIterator) Current() *kv.Entry { return &it.current }
func (it *runIterator) Err() error         { return nil }
func (it *runIterator) Release()           {}
