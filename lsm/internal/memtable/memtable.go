package memtable

import (
	"sync"
	"sync/atomic"

	"docstore/internal/invariants"
	"docstore/internal/offheap"
)

// Memtable holds the newest writes in memory, with all versions of each key, so that a
// snapshot that pins it finds the values at its sequence number. The flush drops
// overwritten versions.
//
// One goroutine at a time writes; any number read, without locks.
type Memtable struct {
	// firstSequence and lastSequence are the sequence numbers of the oldest and newest
	// write, 0 if there is none. They are on different cache lines, because lookups
	// read the first and each write changes the last.
	firstSequence atomic.Uint64
	versionMap
	order order
	bytes atomic.Int64 // memory taken

	// Log is for the owner: the number of the oldest log with writes of this memtable, 0
	// if there is none.
	Log          uint64
	lastSequence uint64
	// sealed is lastSequence once the memtable is sealed, 0 before.
	sealed atomic.Uint64

	refs    atomic.Int32
	account Account
	pinned  struct {
		sync.Mutex
		count int   // open snapshots and iterators that pin it
		bytes int64 // reserved for them
	}
}

// Account counts the memory of memtables. Each function may be nil.
type Account struct {
	// Grow counts bytes that were allocated, or freed if negative.
	Grow func(bytes int64)
	// Pin reserves memory for a pinned memtable, and reports whether there was enough.
	// Unpin releases it.
	Pin   func(bytes int64) bool
	Unpin func(bytes int64)
}

// entryBytes is the approximate overhead of a new key.
const entryBytes = 40

// Cost returns the approximate size of count entries in a memtable. The
// size-tiered rule measures tables with it, too.
func Cost(count uint64, keyAndValueBytes uint64) uint64 {
	return count*entryBytes + keyAndValueBytes
}

// New returns an empty memtable with room bytes: see WriteBytes. Its slot table
// holds the given number of keys without growing.
func New(pool *offheap.Pool, room int64, keys int, account Account) *Memtable {
	m := &Memtable{account: account}
	m.init(pool, int(room), keys, m.grow)
	return m
}

// ExpectedKeys returns the number of keys in the next memtable if its entries resemble
// those of m and it is full at fullBytes. m can be larger than that: it held a large
// batch, or the share of the budget has shrunk.
func (m *Memtable) ExpectedKeys(fullBytes int64) int {
	keys := m.count
	if used := m.Used(); used > fullBytes {
		keys = int(float64(keys) * float64(fullBytes) / float64(used))
	}
	return keys
}

// WriteBytes returns the maximum size of a batch of count writes in a memtable. Used
// grows by less than Cost.
func WriteBytes(count, dataBytes int) int64 { return int64(count)*MaxRunBytes + int64(dataBytes) }

// grow counts memory that the memtable has allocated.
func (m *Memtable) grow(bytes int) {
	m.bytes.Add(int64(bytes))
	if m.account.Grow != nil {
		m.account.Grow(int64(bytes))
	}
}

// Bytes returns the memory taken.
func (m *Memtable) Bytes() int64 { return m.bytes.Load() }

// Empty reports whether there is no write.
func (m *Memtable) Empty() bool { return m.firstSequence.Load() == 0 }

// First returns the sequence number of the oldest write, 0 if there is none.
func (m *Memtable) First() uint64 { return m.firstSequence.Load() }

// Last returns the sequence number of the newest write, 0 if there is none. Only for the
// writer, or after sealing.
func (m *Memtable) Last() uint64 { return m.lastSequence }

// Add adds a write. hash is Hash(key). The sequence number must be greater than all
// previous ones, and room at least WriteBytes.
func (m *Memtable) Add(hash uint32, key []byte, v Version) {
	m.put(hash, key, v)
	if m.Empty() {
		m.firstSequence.Store(v.Sequence)
	}
	m.lastSequence = v.Sequence
}

// Concerns reports whether the memtable has writes up to a sequence number.
func (m *Memtable) Concerns(sequence uint64) bool {
	first := m.firstSequence.Load()
	return first != 0 && first <= sequence
}

// Seal ends writing. The writer calls it before the memtable gets a successor.
func (m *Memtable) Seal() { m.sealed.Store(m.lastSequence) }

// Ref adds a reference.
func (m *Memtable) Ref() { m.refs.Add(1) }

// Unref removes a reference. The last one frees the memory, which no reader may use then.
func (m *Memtable) Unref() {
	left := m.refs.Add(-1)
	invariants.References(int64(left), "a memtable")
	if left == 0 {
		m.grow(int(-m.bytes.Load()))
		m.release()
	}
}

// Pin counts a snapshot or iterator that pins the memtable, and reports whether the
// account permits it. fullBytes is the maximum size of a memtable.
func (m *Memtable) Pin(fullBytes int64) bool {
	if m.account.Pin == nil {
		return true
	}
	m.pinned.Lock()
	defer m.pinned.Unlock()
	if m.pinned.count == 0 {
		m.pinned.bytes = max(fullBytes, m.bytes.Load())
		if !m.account.Pin(m.pinned.bytes) {
			return false
		}
	}
	m.pinned.count++
	return true
}

// Unpin ends a successful pin.
func (m *Memtable) Unpin() {
	if m.account.Pin == nil {
		return
	}
	m.pinned.Lock()
	defer m.pinned.Unlock()
	if m.pinned.count--; m.pinned.count == 0 {
		m.account.Unpin(m.pinned.bytes)
	}
}
