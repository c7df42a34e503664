package lsm

import (
	"bytes"
	"slices"
)

// entrySource steps forwards over entries in the order of their keys, each key
// once, tombstones too. A new one is not on an entry. first and next return whether
// they found one; next may be called only while on one. What key and value
// return is valid until the next positioning call and may lie in a mapping: all calls
// belong inside vfs.Guard.
type entrySource interface {
	first() bool
	next() bool
	key() []byte
	value() []byte
	tombstone() bool
	// err tells why a positioning call returned false, nil at the end.
	err() error
}

// internalIterator is an entrySource that can be positioned anywhere and steps
// backwards, too.
type internalIterator interface {
	entrySource
	last() bool
	seekGE(key []byte) bool
	seekLT(key []byte) bool
	prev() bool
}

// mergingIterator makes one sequence of several. Where they hold the same key,
// the entry of the newest hides the others.
//
// Its sources that are on an entry form a heap: forwards by key, backwards by
// key descending, and newest first among equal keys, so that the entry shown is
// that of the root.
type mergingIterator struct {
	sources  []mergeSource // newest first
	heap     []*mergeSource
	backward bool
	failure  error
}

type mergeSource struct {
	internalIterator
	age int // 0 is the newest
	// at and prefix are the source's key, kept to spare calls.
	at     []byte
	prefix uint64
}

// newMergingIterator merges sources given newest first.
func newMergingIterator(sources []internalIterator) *mergingIterator {
	m := &mergingIterator{
		sources: make([]mergeSource, len(sources)),
		heap:    make([]*mergeSource, 0, len(sources)),
	}
	for i, it := range sources {
		m.sources[i] = mergeSource{internalIterator: it, age: i}
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
	return m.restart(false, func(it internalIterator) bool { return it.seekGE(key) })
}

func (m *mergingIterator) seekLT(key []byte) bool {
	return m.restart(true, func(it internalIterator) bool { return it.seekLT(key) })
}

func (m *mergingIterator) next() bool {
	if m.backward {
		m.turn(false)
	}
	return m.step()
}

func (m *mergingIterator) prev() bool {
	if !m.backward {
		m.turn(true)
	}
	return m.step()
}

func (m *mergingIterator) key() []byte     { return m.heap[0].at }
func (m *mergingIterator) value() []byte   { return m.heap[0].value() }
func (m *mergingIterator) tombstone() bool { return m.heap[0].tombstone() }
func (m *mergingIterator) err() error      { return m.failure }

// restart positions every source anew and builds the heap.
func (m *mergingIterator) restart(backward bool, position func(internalIterator) bool) bool {
	m.backward, m.failure, m.heap = backward, nil, m.heap[:0]
	for i := range m.sources {
		source := &m.sources[i]
		m.enter(source, position(source.internalIterator))
	}
	return m.build()
}

// turn positions every source but the one shown behind the key shown, as seen
// in the new direction, so that step can go on from there.
func (m *mergingIterator) turn(backward bool) {
	shown := m.heap[0]
	key := slices.Clone(shown.at)
	m.backward, m.heap = backward, append(m.heap[:0], shown)
	for i := range m.sources {
		source := &m.sources[i]
		if source == shown {
			continue
		}
		var found bool
		if backward {
			found = source.seekLT(key)
		} else if found = source.seekGE(key); found && bytes.Equal(source.key(), key) {
			found = source.next()
		}
		m.enter(source, found)
	}
	// The one shown comes first: it is at the key, all others are behind it.
	m.build()
}

// enter puts a source that found an entry on the heap's slice.
func (m *mergingIterator) enter(source *mergeSource, found bool) {
	if found {
		source.load()
		m.heap = append(m.heap, source)
		return
	}
	if err := source.err(); err != nil && m.failure == nil {
		m.failure = err
	}
}

func (s *mergeSource) load() {
	s.at = s.key()
	s.prefix = keyPrefix(s.at)
}

// step goes on from the key shown: every source that is on it is moved. The key
// stays readable meanwhile: equal keys leave the heap one by one from the root,
// and the next root is compared before the source that holds the key is moved.
func (m *mergingIterator) step() bool {
	for m.failure == nil {
		root := m.heap[0]
		hidden := m.hides(root)
		m.advance(root)
		if !hidden {
			break
		}
	}
	return m.failure == nil && len(m.heap) > 0
}

// hides tells whether another source is on the root's key. If so it is one of
// the root's children.
func (m *mergingIterator) hides(root *mergeSource) bool {
	for _, child := range m.heap[1:min(3, len(m.heap))] {
		if child.prefix == root.prefix && bytes.Equal(child.at, root.at) {
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
		root.load()
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

// build makes a heap of the sources entered.
func (m *mergingIterator) build() bool {
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.sink(i)
	}
	return m.failure == nil && len(m.heap) > 0
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
	var order int
	switch {
	case a.prefix < b.prefix:
		order = -1
	case a.prefix > b.prefix:
		order = 1
	default:
		order = bytes.Compare(a.at, b.at)
	}
	if order == 0 {
		return a.age < b.age
	}
	return (order < 0) != m.backward
}
