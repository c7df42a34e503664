package lsm

import (
	"bytes"

	"docstore/internal/vfs"
)

// internalIterator steps over entries in the order of their keys, each key once,
// tombstones too. It can be positioned anywhere and steps both ways. A new one is not on an
// entry. Positioning calls return whether they found one; next and prev may be called only
// while on one. What an entry refers to is valid until the next positioning call. Calls of
// prefetchIndex and prefetchBlock belong inside vfs.Guard.
type internalIterator interface {
	first() bool
	last() bool
	seekGE(key []byte) bool
	seekLT(key []byte) bool
	next() bool
	prev() bool
	// prefetchIndex and then prefetchBlock have fetched what a seek of a key is going to
	// read.
	prefetchIndex(key []byte)
	prefetchBlock(key []byte)
	// shown returns where the entry that it is on is told, always the same place.
	shown() *entry
	err() error
}

// mergingIterator makes one sequence of several. Where they hold the same key,
// the entry of the newest hides the others. next goes on in the direction that the
// first call had: forwards from first and seekGE, backwards from last and seekLT.
//
// Its sources that are on an entry form a heap, newest first among equal keys, so that
// the entry shown is that of the root.
type mergingIterator struct {
	sources  []mergeSource // newest first
	heap     []*mergeSource
	backward bool
	failure  error
}

type mergeSource struct {
	internalIterator
	*entry     // that the source is on
	age    int // 0 is the newest
	// rank is the order of entries as far as the first bytes of their keys tell: the
	// prefix, or backwards its complement.
	rank uint64
}

// newMergingIterator merges sources given newest first.
func newMergingIterator(sources []internalIterator) *mergingIterator {
	m := &mergingIterator{
		sources: make([]mergeSource, len(sources)),
		heap:    make([]*mergeSource, 0, len(sources)),
	}
	for i, it := range sources {
		m.sources[i] = mergeSource{internalIterator: it, entry: it.shown(), age: i}
	}
	return m
}

func (m *mergingIterator) first() bool {
	return m.restart(false, func(it internalIterator) bool { return it.first() })
}

func (m *mergingIterator) last() bool {
	return m.restart(true, func(it internalIterator) bool { return it.last() })
}

func (m *mergingIterator) seekGE(key []byte) bool {
	m.prefetch(key)
	return m.restart(false, func(it internalIterator) bool { return it.seekGE(key) })
}

func (m *mergingIterator) seekLT(key []byte) bool {
	m.prefetch(key)
	return m.restart(true, func(it internalIterator) bool { return it.seekLT(key) })
}

// prefetch has fetched what the sources read to seek a key, of all of them side by side.
func (m *mergingIterator) prefetch(key []byte) {
	_ = vfs.Guard(func() { // the seek meets the same fault
		for i := range m.sources {
			m.sources[i].prefetchIndex(key)
		}
		for i := range m.sources {
			m.sources[i].prefetchBlock(key)
		}
	})
}

// release returns the memory of the sources to its pools.
func (m *mergingIterator) release() {
	for i := range m.sources {
		if t, ok := m.sources[i].internalIterator.(*tableIterator); ok {
			t.release()
		}
	}
}

// restart positions every source anew and builds the heap.
func (m *mergingIterator) restart(backward bool, position func(internalIterator) bool) bool {
	m.backward, m.failure, m.heap = backward, nil, m.heap[:0]
	for i := range m.sources {
		source := &m.sources[i]
		if position(source.internalIterator) {
			m.load(source)
			m.heap = append(m.heap, source)
		} else if err := source.err(); err != nil && m.failure == nil {
			m.failure = err
		}
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.sink(i)
	}
	return m.found()
}

func (m *mergingIterator) shown() *entry   { return m.heap[0].entry }
func (m *mergingIterator) key() []byte     { return m.heap[0].key }
func (m *mergingIterator) value() []byte   { return m.heap[0].value }
func (m *mergingIterator) tombstone() bool { return m.heap[0].tombstone }
func (m *mergingIterator) err() error      { return m.failure }

func (m *mergingIterator) found() bool { return m.failure == nil && len(m.heap) > 0 }

// load takes up the entry that a source has come to.
func (m *mergingIterator) load(source *mergeSource) {
	source.rank = keyPrefix(source.key)
	if m.backward {
		source.rank = ^source.rank
	}
}

// next goes on from the key shown: every source that is on it is moved. The key
// stays readable meanwhile: equal keys leave the heap one by one from the root,
// and the next root is compared before the source that holds the key is moved.
func (m *mergingIterator) next() bool {
	for m.failure == nil {
		root := m.heap[0]
		hidden := m.hides(root)
		m.advance(root)
		if !hidden {
			break
		}
	}
	return m.found()
}

// hides tells whether another source is on the root's key. If so it is one of
// the root's children.
func (m *mergingIterator) hides(root *mergeSource) bool {
	for _, child := range m.heap[1:min(3, len(m.heap))] {
		if child.rank == root.rank && bytes.Equal(child.key, root.key) {
			return true
		}
	}
	return false
}

// advance moves the root's source and restores the heap.
func (m *mergingIterator) advance(root *mergeSource) {
	var found bool
	if m.backward {
		found = root.prev()
	} else {
		found = root.next()
	}
	if found {
		m.load(root)
	} else {
		if err := root.err(); err != nil {
			m.failure = err
		}
		end := len(m.heap) - 1
		m.heap[0] = m.heap[end]
		m.heap = m.heap[:end]
	}
	m.sink(0)
}

func (m *mergingIterator) sink(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(m.heap); child++ {
			if m.before(m.heap[child], m.heap[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		m.heap[i], m.heap[least] = m.heap[least], m.heap[i]
		i = least
	}
}

// before is the order of the heap.
func (m *mergingIterator) before(a, b *mergeSource) bool {
	if a.rank != b.rank {
		return a.rank < b.rank
	}
	return m.beforeByKey(a, b)
}

// beforeByKey is before for keys of one prefix.
func (m *mergingIterator) beforeByKey(a, b *mergeSource) bool {
	order := bytes.Compare(a.key, b.key)
	if order == 0 {
		return a.age < b.age
	}
	return (order < 0) != m.backward
}
