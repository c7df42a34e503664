package lsm

import (
	"sync"
	"sync/atomic"

	"docstore/internal/invariants"
	"docstore/internal/offheap"
)

// memtable holds the newest writes in memory, every version of them, so that a
// snapshot that pins it finds what was there at its sequence number. Overwritten
// versions go when the memtable becomes a table.
//
// One goroutine at a time applies batches; any number read, without locks.
type memtable struct {
	versions *versionMap
	// firstSequence and lastSequence are those of the oldest and newest write, 0
	// if there is none. What look-ups read, the first, and what each write changes,
	// the last, lie apart. The last is for the goroutine that fills the memtable and for
	// who comes after it.
	firstSequence atomic.Uint64
	order         memtableOrder
	bytes         atomic.Int64 // memory taken

	// log is the oldest log that holds writes of this memtable, 0 if none does.
	// Set before the memtable is filled, by the goroutine that fills it.
	log          uint64
	lastSequence uint64
	// sealed is lastSequence once no more is written, 0 before.
	sealed atomic.Uint64

	refs   atomic.Int32 // views that list it
	budget *Budget
	pinned struct {
		sync.Mutex
		count int   // open snapshots and iterators that read it
		bytes int64 // counted to the budget for them
	}
}

// memtableEntryBytes is about what a new key takes beside key and value.
const memtableEntryBytes = 40

// memtableCost is about what count entries take in a memtable. It is also the
// measure of tables in the size-tiered rule, which counts in memtables.
func memtableCost(count uint64, keyAndValueBytes uint64) uint64 {
	return count*memtableEntryBytes + keyAndValueBytes
}

// newMemtable returns an empty memtable with room for the given bytes: see writeBytes.
func newMemtable(pool *offheap.Pool, room int64, budget *Budget) *memtable {
	return newMemtableFor(0, pool, room, budget)
}

// newMemtableFor returns an empty memtable whose slot table need not grow before it
// holds the given number of keys.
func newMemtableFor(keys int, pool *offheap.Pool, room int64, budget *Budget) *memtable {
	m := &memtable{budget: budget}
	m.versions = newVersionMap(pool, int(room), keys, m.grow)
	return m
}

// expectedKeys returns how many keys the next memtable will hold if its entries are
// like those of m and it is full at the given bytes. m can be larger than that: it
// held a large batch, or the share of the budget has become smaller.
func (m *memtable) expectedKeys(fullBytes int64) int {
	keys := m.versions.count
	if used := m.used(); used > fullBytes {
		keys = int(float64(keys) * float64(fullBytes) / float64(used))
	}
	return keys
}

// writeBytes is the room that a batch of count writes needs at most. What used tells
// grows by less than memtableCost.
func writeBytes(count, dataBytes int) int64 { return int64(count)*maxRunBytes + int64(dataBytes) }

// room is what there is room for. Only for the goroutine that applies batches.
func (m *memtable) room() int64 { return m.versions.room() }

// grow counts memory that the memtable has taken.
func (m *memtable) grow(bytes int) {
	m.bytes.Add(int64(bytes))
	m.budget.grow(int64(bytes))
}

// used returns the number of bytes that the entries need. Only for the goroutine that
// applies batches.
func (m *memtable) used() int64 { return m.versions.used() }

func (m *memtable) empty() bool { return m.firstSequence.Load() == 0 }

// apply adds the ops of a checked batch under the sequence numbers from first on.
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

// applyWindow is how many ops of a batch have their places fetched side by side.
const applyWindow = 16

// prefetch has fetched what add reads first for a key, and returns the key's hash.
func (m *memtable) prefetch(key []byte) (hash uint32) {
	hash = hashKey(key)
	m.versions.prefetchSlot(hash)
	return hash
}

// add is apply for a single op, whose key has the given hash.
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

// concerns tells whether anything in the memtable was written up to a sequence number.
func (m *memtable) concerns(sequence uint64) bool {
	first := m.firstSequence.Load()
	return first != 0 && first <= sequence
}

// get returns the version of a key that was current at a sequence number. hash is
// that of hashKey.
func (m *memtable) get(hash uint32, key []byte, sequence uint64) (memVersion, bool) {
	return m.versions.get(hash, key, sequence)
}

// seal is called by the goroutine that fills the memtable, before others find it behind
// a newer one.
func (m *memtable) seal() { m.sealed.Store(m.lastSequence) }

func (m *memtable) ref() { m.refs.Add(1) }

// unref gives the memory back when no view lists the memtable. A reader holds a view
// that lists the memtable, and no slice of its memory leaves the package.
func (m *memtable) unref() {
	left := m.refs.Add(-1)
	invariants.References(int64(left), "a memtable")
	if left == 0 {
		m.budget.grow(-m.bytes.Load())
		m.versions.release()
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
