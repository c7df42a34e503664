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
// One goroutine at a time writes; any number read, without locks.
type memtable struct {
	// firstSequence and lastSequence are the sequence numbers of the oldest and newest
	// write, 0 if there is none. They are on different cache lines, because lookups
	// read the first and each write changes the last.
	firstSequence atomic.Uint64
	versionMap
	order memtableOrder
	bytes atomic.Int64 // memory taken

	// log is for the owner: the number of the oldest log with writes of this memtable, 0
	// if there is none.
	log          uint64
	lastSequence uint64
	// sealed is lastSequence once the memtable is sealed, 0 before.
	sealed atomic.Uint64

	refs    atomic.Int32
	account memoryAccount
	pinned  struct {
		sync.Mutex
		count int   // open snapshots and iterators that pin it
		bytes int64 // reserved for them
	}
}

// memoryAccount counts the memory of memtables. Each function may be nil.
type memoryAccount struct {
	// grow counts bytes that were allocated, or freed if negative.
	grow func(bytes int64)
	// pin reserves memory for a pinned memtable, and reports whether there was enough.
	// unpin releases it.
	pin   func(bytes int64) bool
	unpin func(bytes int64)
}

// memtableEntryBytes is the approximate overhead of a new key.
const memtableEntryBytes = 40

// memtableCost returns the approximate size of count entries in a memtable. The
// size-tiered rule measures tables with it, too.
func memtableCost(count uint64, keyAndValueBytes uint64) uint64 {
	return count*memtableEntryBytes + keyAndValueBytes
}

// newMemtable returns an empty memtable with room bytes: see writeBytes. Its slot table
// holds the given number of keys without growing.
func newMemtable(pool *offheap.Pool, room int64, keys int, account memoryAccount) *memtable {
	m := &memtable{account: account}
	m.versionMap.init(pool, int(room), keys, m.grow)
	return m
}

// expectedKeys returns the number of keys in the next memtable if its entries resemble
// those of m and it is full at fullBytes. m can be larger than that: it held a large
// batch, or the share of the budget has shrunk.
func (m *memtable) expectedKeys(fullBytes int64) int {
	keys := m.count
	if used := m.used(); used > fullBytes {
		keys = int(float64(keys) * float64(fullBytes) / float64(used))
	}
	return keys
}

// writeBytes returns the maximum size of a batch of count writes in a memtable. used
// grows by less than memtableCost.
func writeBytes(count, dataBytes int) int64 { return int64(count)*maxRunBytes + int64(dataBytes) }

// grow counts memory that the memtable has allocated.
func (m *memtable) grow(bytes int) {
	m.bytes.Add(int64(bytes))
	if m.account.grow != nil {
		m.account.grow(int64(bytes))
	}
}

// memoryBytes returns the memory taken.
func (m *memtable) memoryBytes() int64 { return m.bytes.Load() }

// empty reports whether there is no write.
func (m *memtable) empty() bool { return m.firstSequence.Load() == 0 }

// first returns the sequence number of the oldest write, 0 if there is none.
func (m *memtable) first() uint64 { return m.firstSequence.Load() }

// last returns the sequence number of the newest write, 0 if there is none. Only for the
// writer, or after sealing.
func (m *memtable) last() uint64 { return m.lastSequence }

// add adds a write. hash is hashKey(key). The sequence number must be greater than all
// previous ones, and room at least writeBytes.
func (m *memtable) add(hash uint32, key []byte, v memVersion) {
	m.put(hash, key, v)
	if m.empty() {
		m.firstSequence.Store(v.sequence)
	}
	m.lastSequence = v.sequence
}

// concerns reports whether the memtable has writes up to a sequence number.
func (m *memtable) concerns(sequence uint64) bool {
	first := m.firstSequence.Load()
	return first != 0 && first <= sequence
}

// seal ends writing. The writer calls it before the memtable gets a successor.
func (m *memtable) seal() { m.sealed.Store(m.lastSequence) }

// ref adds a reference.
func (m *memtable) ref() { m.refs.Add(1) }

// unref removes a reference. The last one frees the memory, which no reader may use then.
func (m *memtable) unref() {
	left := m.refs.Add(-1)
	invariants.References(int64(left), "a memtable")
	if left == 0 {
		m.grow(int(-m.bytes.Load()))
		m.release()
	}
}

// pin counts a snapshot or iterator that pins the memtable, and reports whether the
// account permits it. fullBytes is the maximum size of a memtable.
func (m *memtable) pin(fullBytes int64) bool {
	if m.account.pin == nil {
		return true
	}
	m.pinned.Lock()
	defer m.pinned.Unlock()
	if m.pinned.count == 0 {
		m.pinned.bytes = max(fullBytes, m.bytes.Load())
		if !m.account.pin(m.pinned.bytes) {
			return false
		}
	}
	m.pinned.count++
	return true
}

// unpin ends a successful pin.
func (m *memtable) unpin() {
	if m.account.pin == nil {
		return
	}
	m.pinned.Lock()
	defer m.pinned.Unlock()
	if m.pinned.count--; m.pinned.count == 0 {
		m.account.unpin(m.pinned.bytes)
	}
}
