package lsm

import (
	"sync"
	"sync/atomic"

	"docstore/internal/invariants"
	"docstore/internal/offheap"
)

// memtable holds the newest writes in memory, with all versions of each key, so that a
// snapshot that pins it finds the values at its sequence number. The flush drops
// overwritten versions.
//
// One goroutine at a time applies batches; any number read, without locks.
type memtable struct {
	versions *versionMap
	// firstSequence and lastSequence are the sequence numbers of the oldest and newest
	// write, 0 if there is none. They are on different cache lines, because lookups
	// read the first and each write changes the last. lastSequence may be read by the
	// goroutine that fills the memtable, and by all once it is sealed.
	firstSequence atomic.Uint64
	order         memtableOrder
	bytes         atomic.Int64 // memory taken

	// log is the number of the oldest log with writes of this memtable, 0 if there is
	// none. The writer sets it before it fills the memtable.
	log          uint64
	lastSequence uint64
	// sealed is lastSequence once the memtable is sealed, 0 before.
	sealed atomic.Uint64

	refs   atomic.Int32 // views that list it
	budget *Budget
	pinned struct {
		sync.Mutex
		count int   // open snapshots and iterators that pin it
		bytes int64 // counted to the budget for them
	}
}

// memtableEntryBytes is the approximate overhead of a new key.
const memtableEntryBytes = 40

// memtableCost returns the approximate size of count entries in a memtable. The
// size-tiered rule measures tables with it, too.
func memtableCost(count uint64, keyAndValueBytes uint64) uint64 {
	return count*memtableEntryBytes + keyAndValueBytes
}

// newMemtable returns an empty memtable with room bytes: see writeBytes.
func newMemtable(pool *offheap.Pool, room int64, budget *Budget) *memtable {
	return newMemtableFor(0, pool, room, budget)
}

// newMemtableFor returns an empty memtable whose slot table holds the given number of
// keys without growing.
func newMemtableFor(keys int, pool *offheap.Pool, room int64, budget *Budget) *memtable {
	m := &memtable{budget: budget}
	m.versions = newVersionMap(pool, int(room), keys, m.grow)
	return m
}

// expectedKeys returns the number of keys in the next memtable if its entries resemble
// those of m and it is full at fullBytes. m can be larger than that: it held a large
// batch, or the share of the budget has shrunk.
func (m *memtable) expectedKeys(fullBytes int64) int {
	keys := m.versions.count
	if used := m.used(); used > fullBytes {
		keys = int(float64(keys) * float64(fullBytes) / float64(used))
	}
	return keys
}

// writeBytes returns the maximum size of a batch of count writes in a memtable. used
// grows by less than memtableCost.
func writeBytes(count, dataBytes int) int64 { return int64(count)*maxRunBytes + int64(dataBytes) }

// room returns the free space in bytes. Only for the writer.
func (m *memtable) room() int64 { return m.versions.room() }

// grow counts memory that the memtable has allocated.
func (m *memtable) grow(bytes int) {
	m.bytes.Add(int64(bytes))
	m.budget.grow(int64(bytes))
}

// used returns the number of bytes that the entries need. Only for the writer.
func (m *memtable) used() int64 { return m.versions.used() }

func (m *memtable) empty() bool { return m.firstSequence.Load() == 0 }

// apply applies the ops of a checked batch with sequence numbers from first on.
func (m *memtable) apply(batch []byte, first uint64) error {
	ops, err := decodeBatch(batch)
	if err != nil {
		return err
	}
	sequence := first
	var window [applyWindow]struct {
		op
		hash uint32
	}
	for ops.count > 0 {
		n := min(ops.count, applyWindow)
		for i := range window[:n] {
			w := &window[i]
			if w.op, err = ops.next(); err != nil {
				return err
			}
			w.hash = m.prefetch(w.key)
		}
		for i := range window[:n] {
			w := &window[i]
			m.versions.add(w.hash, w.key, memVersion{sequence, w.kind == opDelete, w.value})
			sequence++
		}
	}
	m.noteSequences(first, sequence-1)
	return nil
}

// applyWindow is the number of ops of a batch whose slots are prefetched together.
const applyWindow = 16

// prefetch prefetches the slot of a key and returns the key's hash.
func (m *memtable) prefetch(key []byte) (hash uint32) {
	hash = hashKey(key)
	m.versions.prefetchSlot(hash)
	return hash
}

// add applies a single op whose key has the given hash.
func (m *memtable) add(o op, hash uint32, sequence uint64) {
	m.versions.add(hash, o.key, memVersion{sequence, o.kind == opDelete, o.value})
	m.noteSequences(sequence, sequence)
}

func (m *memtable) noteSequences(first, last uint64) {
	if m.empty() {
		m.firstSequence.Store(first)
	}
	m.lastSequence = last
}

// concerns reports whether the memtable has writes up to a sequence number.
func (m *memtable) concerns(sequence uint64) bool {
	first := m.firstSequence.Load()
	return first != 0 && first <= sequence
}

// get returns the version of a key at a sequence number. hash is hashKey(key).
func (m *memtable) get(hash uint32, key []byte, sequence uint64) (memVersion, bool) {
	return m.versions.get(hash, key, sequence)
}

// seal ends writing. The writer calls it before the memtable gets a successor.
func (m *memtable) seal() { m.sealed.Store(m.lastSequence) }

func (m *memtable) ref() { m.refs.Add(1) }

// unref releases the memory when no view lists the memtable. Readers reference such a
// view, and no slice of the memory leaves the package.
func (m *memtable) unref() {
	left := m.refs.Add(-1)
	invariants.References(int64(left), "a memtable")
	if left == 0 {
		m.budget.grow(-m.bytes.Load())
		m.versions.release()
	}
}

// pin counts a snapshot or iterator that pins the memtable, and reports whether the
// budget permits it. fullBytes is the maximum size of a memtable.
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
