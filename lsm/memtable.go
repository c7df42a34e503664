package lsm

import (
	"sync"
	"sync/atomic"
)

// memtable holds the newest writes in memory, every version of them, so that a
// snapshot that pins it finds what was there at its sequence number. Overwritten
// versions go when the memtable becomes a table.
//
// One goroutine at a time applies batches; any number read, without locks.
type memtable struct {
	list  *skiplist
	bytes atomic.Int64 // memory taken

	// log is the oldest log that holds writes of this memtable, 0 if none does.
	// Set before the memtable is filled, by the goroutine that fills it.
	log uint64
	// firstSequence and lastSequence are those of the oldest and newest write, 0
	// if there is none.
	firstSequence, lastSequence atomic.Uint64

	refs   atomic.Int32 // views that list it
	budget *Budget
	pinned struct {
		sync.Mutex
		count int   // open snapshots and iterators that read it
		bytes int64 // counted to the budget for them
	}
}

// memtableEntryBytes is about what a new key takes beside key and value.
const memtableEntryBytes = 64

// memtableCost is about what count entries take in a memtable. It is also the
// measure of tables in the size-tiered rule, which counts in memtables.
func memtableCost(count uint64, keyAndValueBytes uint64) uint64 {
	return count*memtableEntryBytes + keyAndValueBytes
}

func newMemtable(budget *Budget) *memtable {
	m := &memtable{budget: budget}
	m.list = newSkiplist(func(bytes int) {
		m.bytes.Add(int64(bytes))
		m.budget.grow(int64(bytes))
	})
	return m
}

// used is the number of bytes that what was written takes. Only for the
// goroutine that applies batches.
func (m *memtable) used() int64 { return m.list.used() }

func (m *memtable) empty() bool { return m.lastSequence.Load() == 0 }

// apply adds the ops of a checked batch under the sequence numbers from first on.
func (m *memtable) apply(batch []byte, first uint64) error {
	ops, err := decodeBatch(batch)
	if err != nil {
		return err
	}
	sequence := first
	for ; ops.count > 0; sequence++ {
		o, err := ops.next()
		if err != nil {
			return err
		}
		m.list.add(o.key, memVersion{sequence, o.kind == opDelete, o.value})
	}
	if m.empty() {
		m.firstSequence.Store(first)
	}
	m.lastSequence.Store(sequence - 1)
	return nil
}

// get returns the version of a key that was current at a sequence number.
func (m *memtable) get(key []byte, sequence uint64) (memVersion, bool) {
	_, node, found := m.list.seek(key, nil)
	if !found {
		return memVersion{}, false
	}
	return m.list.versionAt(node, sequence)
}

func (m *memtable) ref() { m.refs.Add(1) }

// unref gives the memory back to the budget when no view lists the memtable
// any more. The garbage collector does the rest.
func (m *memtable) unref() {
	if m.refs.Add(-1) == 0 {
		m.budget.grow(-m.bytes.Load())
	}
}

// pin counts one more snapshot or iterator that keeps the memtable, unless the
// budget has no room for that. fullBytes is what a memtable grows to.
func (m *memtable) pin(fullBytes int64) bool {
	if m.budget == nil {
		return true
	}
	m.pinned.Lock()
	defer m.pinned.Unlock()
	if m.pinned.count == 0 {
		m.pinned.bytes = max(fullBytes, m.bytes.Load())
		if !m.budget.pin(m.pinned.bytes) {
			return false
		}
	}
	m.pinned.count++
	return true
}

func (m *memtable) unpin() {
	if m.budget == nil {
		return
	}
	m.pinned.Lock()
	defer m.pinned.Unlock()
	if m.pinned.count--; m.pinned.count == 0 {
		m.budget.unpin(m.pinned.bytes)
	}
}

// memtableIterator steps over the keys of a memtable as they were at a sequence
// number.
type memtableIterator struct {
	list     *skiplist
	sequence uint64
	node     ref // noRef or the head: not on an entry
	current  memVersion
}

func (m *memtable) iterator(sequence uint64) *memtableIterator {
	return &memtableIterator{list: m.list, sequence: sequence}
}

func (it *memtableIterator) first() bool { return it.forward(it.list.first()) }
func (it *memtableIterator) last() bool  { return it.backward(it.list.tail()) }

func (it *memtableIterator) seekGE(key []byte) bool {
	_, node, _ := it.list.seek(key, nil)
	return it.forward(node)
}

func (it *memtableIterator) seekLT(key []byte) bool {
	node, _, _ := it.list.seek(key, nil)
	return it.backward(node)
}

func (it *memtableIterator) next() bool { return it.forward(it.list.next(it.node)) }
func (it *memtableIterator) prev() bool { return it.seekLT(it.key()) }

// forward stops at the first node from the given one on that has a version old enough.
func (it *memtableIterator) forward(node ref) bool {
	for ; node != noRef; node = it.list.next(node) {
		if v, ok := it.list.versionAt(node, it.sequence); ok {
			it.node, it.current = node, v
			return true
		}
	}
	it.node = noRef
	return false
}

func (it *memtableIterator) backward(node ref) bool {
	for node != it.list.head {
		if v, ok := it.list.versionAt(node, it.sequence); ok {
			it.node, it.current = node, v
			return true
		}
		node, _, _ = it.list.seek(it.list.key(node), nil)
	}
	it.node = noRef
	return false
}

func (it *memtableIterator) key() []byte     { return it.list.key(it.node) }
func (it *memtableIterator) value() []byte   { return it.current.value }
func (it *memtableIterator) tombstone() bool { return it.current.tombstone }
func (it *memtableIterator) err() error      { return nil }
