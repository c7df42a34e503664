package kv

import (
	"bytes"

	"docstore/internal/vfs"
)

// MergingIterator merges several iterators. The entry of the newest source hides the
// others with the same key. Next moves in the direction of the last positioning call:
// forwards after First and SeekGE, backwards after Last and SeekLT.
//
// Sources with a current entry form a heap, newest first among equal keys; its root is
// the current entry.
type MergingIterator struct {
	sources  []mergeSource // newest first
	heap     []*mergeSource
	backward bool
	failure  error
}

type mergeSource struct {
	Iterator
	*Entry     // current entry of the source
	age    int // 0 is the newest
	// rank orders entries by the first bytes of their keys: the prefix, or its
	// complement when moving backwards.
	rank uint64
}

// NewMergingIterator merges sources, newest first.
func NewMergingIterator(sources []Iterator) *MergingIterator {
	m := &MergingIterator{
		sources: make([]mergeSource, len(sources)),
		heap:    make([]*mergeSource, 0, len(sources)),
	}
	for i, it := range sources {
		m.sources[i] = mergeSource{Iterator: it, Entry: it.Current(), age: i}
	}
	return m
}

// First moves to the smallest key.
func (m *MergingIterator) First() bool {
	return m.restart(false, func(it Iterator) bool { return it.First() })
}

// Last moves to the greatest key.
func (m *MergingIterator) Last() bool {
	return m.restart(true, func(it Iterator) bool { return it.Last() })
}

// SeekGE moves to the smallest key that is at least key.
func (m *MergingIterator) SeekGE(key []byte) bool {
	m.prefetch(key)
	return m.restart(false, func(it Iterator) bool { return it.SeekGE(key) })
}

// SeekLT moves to the greatest key below key.
func (m *MergingIterator) SeekLT(key []byte) bool {
	m.prefetch(key)
	return m.restart(true, func(it Iterator) bool { return it.SeekLT(key) })
}

// prefetch prefetches the memory that a seek of key reads in all sources, so that cache
// misses overlap.
func (m *MergingIterator) prefetch(key []byte) {
	_ = vfs.Guard(func() { // the seek reports the fault
		for i := range m.sources {
			m.sources[i].PrefetchIndex(key)
		}
		for i := range m.sources {
			m.sources[i].PrefetchBlock(key)
		}
	})
}

// Release returns the memory of the sources to its pools.
func (m *MergingIterator) Release() {
	for i := range m.sources {
		m.sources[i].Release()
	}
}

// restart positions all sources and builds the heap.
func (m *MergingIterator) restart(backward bool, position func(Iterator) bool) bool {
	m.backward, m.failure, m.heap = backward, nil, m.heap[:0]
	for i := range m.sources {
		source := &m.sources[i]
		if position(source.Iterator) {
			m.load(source)
			m.heap = append(m.heap, source)
		} else if err := source.Err(); err != nil && m.failure == nil {
			m.failure = err
		}
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.sink(i)
	}
	return m.found()
}

// Current returns the current entry.
func (m *MergingIterator) Current() *Entry { return m.heap[0].Entry }

// Err returns the reason why the last positioning call failed; nil at an end.
func (m *MergingIterator) Err() error { return m.failure }

func (m *MergingIterator) found() bool { return m.failure == nil && len(m.heap) > 0 }

// load updates the rank of a source that has moved.
func (m *MergingIterator) load(source *mergeSource) {
	source.rank = Prefix(source.Key)
	if m.backward {
		source.rank = ^source.rank
	}
}

// Next moves past the current key in all sources that have it. The key remains readable
// meanwhile: sources with equal keys leave the heap one by one from the root, and the
// next root is compared before the source that holds the key is moved.
func (m *MergingIterator) Next() bool {
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

// hides reports whether another source has the root's key. If so, it is a child of the
// root.
func (m *MergingIterator) hides(root *mergeSource) bool {
	for _, child := range m.heap[1:min(3, len(m.heap))] {
		if child.rank == root.rank && bytes.Equal(child.Key, root.Key) {
			return true
		}
	}
	return false
}

// advance moves the root's source and restores the heap.
func (m *MergingIterator) advance(root *mergeSource) {
	var found bool
	if m.backward {
		found = root.Prev()
	} else {
		found = root.Next()
	}
	if found {
		m.load(root)
	} else {
		if err := root.Err(); err != nil {
			m.failure = err
		}
		end := len(m.heap) - 1
		m.heap[0] = m.heap[end]
		m.heap = m.heap[:end]
	}
	m.sink(0)
}

func (m *MergingIterator) sink(i int) {
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

// before orders the heap.
func (m *MergingIterator) before(a, b *mergeSource) bool {
	if a.rank != b.rank {
		return a.rank < b.rank
	}
	return m.beforeByKey(a, b)
}

// beforeByKey is before for keys with equal prefixes.
func (m *MergingIterator) beforeByKey(a, b *mergeSource) bool {
	order := bytes.Compare(a.Key, b.Key)
	if order == 0 {
		return a.age < b.age
	}
	return (order < 0) != m.backward
}
