package memtable

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"sync/atomic"
	"unsafe"

	"docstore/internal/offheap"
	"docstore/internal/prefetch"
	"docstore/lsm/internal/kv"
)

// versionMap is an unordered map from keys to chains of versions, newest first.
// order sorts its keys when necessary.
//
// It is an open-addressing hash table of keys. A slot, 0 if empty, is
//
//	hash u32 | key's ref u32
//
// Its home position is given by the upper bits of the hash, so a larger table is filled
// from a smaller one in order and without reading keys. Keys and versions are
// consecutive runs in one region of memory, each aligned to four bytes. The first
// version of a key is in its key's run, each later one in a separate run:
//
//	key's run:     newest version's ref u32 | key length u32 | key | version
//	version's run: laterVersion u32 | version
//	version:       sequence u32 | older version's ref u32 | length<<1 + tombstone u32 | value
//
// A ref is an offset. Sequence numbers are relative to the first write.
//
// Concurrency: one goroutine writes, any number read, without locks.
//
//   - A run is complete before the atomic store that makes it reachable: that of its
//     key's newest version or that of the key's slot. It is never written again, except
//     for a key's newest version.
//   - Each write adds one run. So the visible sequence number determines the number of
//     visible runs.
//   - A slot changes from empty to a key once and never again. Nothing is removed.
//   - A larger slot table has all keys of the smaller one before it is published, and
//     from then on only the larger one is written. So a reader that loads the table after
//     the visible sequence number finds all visible keys, even if the table is replaced
//     during the search.
type versionMap struct {
	slots  atomic.Pointer[slotTable]
	memory offheap.Region
	data   []byte // of memory
	end    int    // end of the runs
	taken  int    // bytes of memory ever touched
	own    int    // bytes of all memory, as reported to grown
	count  int    // number of keys
	needed uint   // log2 of the smallest slot table that holds count keys
	shared int    // length of the prefix common to all keys
	base   uint64 // sequence number of the first write

	pool   *offheap.Pool
	tables []offheap.Region // slots; readers may still use the smaller ones
	grown  func(bytes int)
}

type slotTable struct {
	slots []atomic.Uint64 // the length is a power of two
	shift uint            // hash >> shift is the home position
}

// ref is the offset of a key or version in data.
type ref uint32

// noRef ends a chain, and is the newest version of a key that is not yet published.
const noRef ref = 0

const (
	runAlignment = 4
	firstRun     = runAlignment // 0 is noRef

	laterVersion = 1<<32 - 1 // not the ref of any version

	keyHeaderBytes     = 4 + 4
	versionHeaderBytes = 4 + 4 + 4

	// MaxRoomBytes is the maximum room of a memtable: refs have 32 bits.
	MaxRoomBytes = 1<<32 - 1 - firstRun
	// MaxRunBytes is the maximum size of a write without key and value.
	MaxRunBytes = keyHeaderBytes + versionHeaderBytes + runAlignment - 1

	slotBytes     = 8
	firstSlotBits = 6

	// sparseBytes is the part of a map without huge pages, which small maps do not
	// exceed.
	sparseBytes = 2 << 20
)

// hashSeed is random per process, so that clients cannot choose keys that collide.
var hashSeed = maphash.MakeSeed()

// Hash returns the hash of a key.
func Hash(key []byte) uint32 { return uint32(maphash.Bytes(hashSeed, key) >> 32) }

// init makes an empty map with capacity bytes for runs and slots for the given number of
// keys. It calls grown with the memory allocated.
func (m *versionMap) init(pool *offheap.Pool, capacity, keys int, grown func(bytes int)) {
	m.end, m.needed, m.pool, m.grown = firstRun, firstSlotBits, pool, grown
	// A reused region is not cleared: runs are written before they are read.
	m.memory, m.taken = pool.New(firstRun+capacity, sparseBytes)
	m.take(m.taken)
	m.data = m.memory.Bytes()
	bits := uint(firstSlotBits)
	for keysOf(bits) < keys {
		bits++
	}
	m.slots.Store(m.newSlots(bits))
}

// take counts memory.
func (m *versionMap) take(bytes int) {
	m.own += bytes
	m.grown(bytes)
}

// keysOf returns the capacity of a slot table of the given bits: two thirds of its
// slots.
func keysOf(bits uint) int { return 1 << bits / 3 * 2 }

func (m *versionMap) newSlots(bits uint) *slotTable {
	memory, touched := m.pool.New(slotBytes<<bits, 0)
	clear(memory.Bytes()[:touched])
	m.tables = append(m.tables, memory)
	m.take(slotBytes << bits)
	first := (*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(memory.Bytes())))
	return &slotTable{slots: unsafe.Slice(first, 1<<bits), shift: 32 - bits}
}

// Used returns the number of bytes that the entries need, without initial slots that
// are not needed yet. Only for the writer.
func (m *versionMap) Used() int64 { return int64(m.end) + slotBytes<<m.needed }

// Room returns the free space for runs in bytes. Only for the writer.
func (m *versionMap) Room() int64 { return int64(len(m.data) - m.end) }

// OwnBytes returns the memory taken without that of sorted runs. Only for the writer.
func (m *versionMap) OwnBytes() int64 { return int64(m.own) }

// release frees the memory. The map must not be used afterwards.
func (m *versionMap) release() {
	last := len(m.tables) - 1
	for _, table := range m.tables[:last] {
		table.Release() // the next map starts with one of the last size
	}
	m.pool.Release(m.tables[last], len(m.tables[last].Bytes()))
	m.pool.Release(m.memory, m.taken)
}

// word returns the first word of a reachable run.
func (m *versionMap) word(r ref) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&m.data[r : r+4][0]))
}

func (m *versionMap) key(r ref) []byte {
	b := m.data[r:]
	n := binary.LittleEndian.Uint32(b[4:])
	return b[keyHeaderBytes : keyHeaderBytes+n : keyHeaderBytes+n]
}

// find returns a key and true, or the empty slot for it.
func (m *versionMap) find(t *slotTable, hash uint32, key []byte) (at ref, slot *atomic.Uint64, found bool) {
	mask := uint32(len(t.slots) - 1)
	for home := hash >> t.shift; ; home++ {
		slot := &t.slots[home&mask]
		s := slot.Load()
		if s == 0 {
			return noRef, slot, false
		}
		if uint32(s>>32) == hash && bytes.Equal(m.key(ref(s)), key) {
			return ref(s), slot, true
		}
	}
}

// Get returns the newest version of a key up to a sequence number.
func (m *versionMap) Get(hash uint32, key []byte, sequence uint64) (Version, bool) {
	at, _, found := m.find(m.slots.Load(), hash, key)
	if !found {
		return Version{}, false
	}
	return m.versionAt(at, sequence)
}

// A lookup has two dependent cache misses: the slot, then key and version, which
// usually are one run. PrefetchSlot and PrefetchRun prefetch these in separate steps,
// so that the cache misses of many lookups overlap.

func (m *versionMap) PrefetchSlot(hash uint32) {
	t := m.slots.Load()
	prefetch.Of(&t.slots[hash>>t.shift])
}

// PrefetchRun prefetches the first key with a hash, usually the right one, and reports
// whether there is one: if not, the map does not have the key.
func (m *versionMap) PrefetchRun(hash uint32) bool {
	t := m.slots.Load()
	mask := uint32(len(t.slots) - 1)
	for at := hash >> t.shift; ; at++ {
		s := t.slots[at&mask].Load()
		if s == 0 {
			return false
		}
		if uint32(s>>32) == hash {
			m.prefetch(ref(s))
			return true
		}
	}
}

// prefetch prefetches most runs completely.
func (m *versionMap) prefetch(r ref) {
	prefetch.Bytes(m.data[r:min(int(r)+prefetchedEntryBytes, len(m.data))])
}

// prefetchNewest prefetches the newest version of a key whose run is in the cache.
func (m *versionMap) prefetchNewest(r ref) { m.prefetch(ref(m.word(r).Load())) }

// prefetchedEntryBytes is the prefetched size of a key with its newest version.
const prefetchedEntryBytes = 3 * prefetch.LineBytes

// Version is a version of a key. value refers to data.
type Version struct {
	Sequence  uint64
	Tombstone bool
	Value     []byte
}

// newest returns the newest version of a key.
func (m *versionMap) newest(at ref) Version { return m.version(ref(m.word(at).Load())) }

// versionAt returns the newest version of a key up to a sequence number.
func (m *versionMap) versionAt(at ref, sequence uint64) (Version, bool) {
	for r := ref(m.word(at).Load()); r != noRef; {
		if v := m.version(r); v.Sequence <= sequence {
			return v, true
		}
		r = ref(binary.LittleEndian.Uint32(m.data[r+4:]))
	}
	return Version{}, false
}

func (m *versionMap) version(r ref) Version {
	b := m.data[r:]
	packed := binary.LittleEndian.Uint32(b[8:])
	end := versionHeaderBytes + packed>>1
	sequence := m.base + uint64(binary.LittleEndian.Uint32(b))
	return Version{sequence, packed&1 != 0, b[versionHeaderBytes:end:end]}
}

// put adds the newest version of a key. Its sequence number must be greater than all
// previous ones, and room must be at least MaxRunBytes, key and value.
func (m *versionMap) put(hash uint32, key []byte, v Version) {
	if m.end == firstRun {
		m.base = v.Sequence
	}
	t := m.slots.Load()
	at, slot, found := m.find(t, hash, key)
	run := ref(m.end)
	if found {
		newest := m.word(at)
		binary.LittleEndian.PutUint32(m.data[run:], laterVersion)
		m.putVersion(run+4, v, ref(newest.Load()))
		newest.Store(uint32(run + 4))
		return
	}
	if m.count >= len(t.slots)/3*2 {
		t = m.enlarge(t)
		_, slot, _ = m.find(t, hash, key)
	}
	if m.count++; m.count > keysOf(m.needed) {
		m.needed++
	}
	if m.count == 1 {
		m.shared = len(key)
	} else if first := m.SharedKey(); !bytes.HasPrefix(key, first) {
		m.shared = kv.CommonPrefix(key, first)
	}
	b := m.data[run:]
	binary.LittleEndian.PutUint32(b[4:], uint32(len(key)))
	copy(b[keyHeaderBytes:], key)
	version := run + keyHeaderBytes + ref(len(key))
	binary.LittleEndian.PutUint32(b, uint32(version))
	m.putVersion(version, v, noRef)
	slot.Store(uint64(hash)<<32 | uint64(run))
}

// SharedKey returns the prefix common to all keys. Only for the writer, or after
// sealing.
func (m *versionMap) SharedKey() []byte {
	if m.count == 0 {
		return nil
	}
	return m.key(firstRun)[:m.shared]
}

// putVersion writes the last part of a run.
func (m *versionMap) putVersion(r ref, v Version, older ref) {
	b := m.data[r:]
	binary.LittleEndian.PutUint32(b, uint32(v.Sequence-m.base))
	binary.LittleEndian.PutUint32(b[4:], uint32(older))
	packed := uint32(len(v.Value)) << 1
	if v.Tombstone {
		packed |= 1
	}
	binary.LittleEndian.PutUint32(b[8:], packed)
	copy(b[versionHeaderBytes:], v.Value)
	m.end = runEnd(r, len(v.Value))
	if m.end > m.taken {
		taken := m.memory.Touched(m.end)
		m.take(taken - m.taken)
		m.taken = taken
	}
}

// runEnd returns the start of the run after that of a version.
func runEnd(version ref, valueBytes int) int {
	return (int(version) + versionHeaderBytes + valueBytes + runAlignment - 1) &^ (runAlignment - 1)
}

// enlarge replaces the slot table by one of twice the size.
func (m *versionMap) enlarge(old *slotTable) *slotTable {
	t := m.newSlots(32 - old.shift + 1)
	mask := uint32(len(t.slots) - 1)
	for i := range old.slots {
		s := old.slots[i].Load()
		if s == 0 {
			continue
		}
		at := uint32(s>>32) >> t.shift
		for t.slots[at&mask].Load() != 0 {
			at++
		}
		t.slots[at&mask].Store(s)
	}
	m.slots.Store(t)
	return t
}
