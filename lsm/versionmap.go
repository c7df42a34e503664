package lsm

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"sync/atomic"
	"unsafe"

	"docstore/internal/offheap"
	"docstore/internal/prefetch"
)

// versionMap is an unordered map from keys to chains of versions, newest first.
// What orders its keys, when that is asked for, is memtableOrder.
//
// It is an open-addressing hash table of keys. A slot, 0 if it is empty, is
//
//	hash u32 | key's ref u32
//
// and its home is given by the upper bits of the hash: a larger table is filled from
// a smaller one in order, and without a look at any key. Keys and versions are runs
// that lie one behind the other in one piece of memory, each from a multiple of four
// on. The first version of a key lies in its run, any later one in a run of its own:
//
//	key's run:     newest version's ref u32 | key length u32 | key | version
//	version's run: laterVersion u32 | version
//	version:       sequence u32 | older version's ref u32 | length<<1 + tombstone u32 | value
//
// A ref is an offset. Sequence numbers are counted from that of the first write.
//
// Concurrency: one goroutine writes, any number read, without locks.
//   - A run is written whole before the atomic store that makes it reachable: that
//     of the newest version of its key, or that of the key's slot. It is never written
//     again, but for a key's newest version.
//   - Each write adds one run. So who knows up to which sequence number writes are
//     visible knows how many runs there are to be stepped over.
//   - A slot goes from empty to a key once and never changes again. Nothing is
//     ever removed.
//   - A larger table holds all of the smaller one before it is published, and only
//     it is written from then on. So who loads the table after the sequence number
//     up to which writes are visible finds all of these, even if the table is
//     replaced while it is searched.
type versionMap struct {
	slots  atomic.Pointer[slotTable]
	memory offheap.Region
	data   []byte // of memory
	end    int    // of the runs
	taken  int    // bytes of memory that were ever touched
	bytes  int    // of all memory, as told to grown
	count  int    // of keys
	needed uint   // bits of the smallest slot table that holds count keys
	shared int    // bytes that all keys begin with
	first  uint64 // sequence number of the first write

	pool   *offheap.Pool
	tables []offheap.Region // of the slots; smaller ones may still be read
	grown  func(bytes int)
}

type slotTable struct {
	slots []atomic.Uint64 // a power of two
	shift uint            // a hash shifted right by it is its home
}

// ref names a key or a version: where it begins in data.
type ref uint32

// noRef is the end of a chain, and the newest version of a key not yet published.
const noRef ref = 0

const (
	runAlignment = 4
	firstRun     = runAlignment // 0 is noRef

	laterVersion = 1<<32 - 1 // no ref of a version

	keyHeaderBytes     = 4 + 4
	versionHeaderBytes = 4 + 4 + 4

	// maxRunBytes is the most that a write takes beside key and value.
	maxRunBytes = keyHeaderBytes + versionHeaderBytes + runAlignment - 1

	slotBytes     = 8
	firstSlotBits = 6

	// sparseBytes is the part of a map that is not worth huge pages if it holds no more.
	sparseBytes = 2 << 20
)

// Refs reach as far as memtables and batches need, those of the shortest ops included.
const (
	_ = uint32(maxMemtableBytes + firstRun)
	_ = uint32(MaxBatchBytes/2*maxRunBytes + MaxBatchBytes + firstRun)
)

// hashSeed makes where a key goes differ from process to process, so that nobody
// can choose keys that all go to one place.
var hashSeed = maphash.MakeSeed()

func hashKey(key []byte) uint32 { return uint32(maphash.Bytes(hashSeed, key) >> 32) }

// newVersionMap returns an empty map with room for runs of the given bytes and slots
// for the given number of keys. It calls grown with the memory that it takes.
func newVersionMap(pool *offheap.Pool, capacity, keys int, grown func(bytes int)) *versionMap {
	m := &versionMap{end: firstRun, needed: firstSlotBits, pool: pool, grown: grown}
	// A reused region is not cleared: nothing reads a run before it is written.
	m.memory, m.taken = pool.New(firstRun+capacity, sparseBytes)
	m.take(m.taken)
	m.data = m.memory.Bytes()
	bits := uint(firstSlotBits)
	for keysOf(bits) < keys {
		bits++
	}
	m.slots.Store(m.newSlots(bits))
	return m
}

// take counts memory.
func (m *versionMap) take(bytes int) {
	m.bytes += bytes
	m.grown(bytes)
}

// keysOf returns how many keys a slot table of the given bits holds: two thirds of its
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

// keyPrefix returns the first eight bytes of a key as a number of the same order.
func keyPrefix(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var p [8]byte
	copy(p[:], key)
	return binary.BigEndian.Uint64(p[:])
}

// used returns the number of bytes that the entries need. It does not count slots
// that the map began with and does not need yet. Only for the goroutine that writes.
func (m *versionMap) used() int64 { return int64(m.end) + slotBytes<<m.needed }

// room is how many bytes of runs there is room for. Only for the goroutine that writes.
func (m *versionMap) room() int64 { return int64(len(m.data) - m.end) }

// release gives the memory back. The map must not be used afterwards.
func (m *versionMap) release() {
	last := len(m.tables) - 1
	for _, table := range m.tables[:last] {
		table.Release() // the next map begins with one as large as the last
	}
	m.pool.Release(m.tables[last], len(m.tables[last].Bytes()))
	m.pool.Release(m.memory, m.taken)
}

// word is the word at the start of a run that is reachable.
func (m *versionMap) word(r ref) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&m.data[r : r+4][0]))
}

func (m *versionMap) key(r ref) []byte {
	b := m.data[r:]
	n := binary.LittleEndian.Uint32(b[4:])
	return b[keyHeaderBytes : keyHeaderBytes+n : keyHeaderBytes+n]
}

// find returns a key and true, or the empty slot where it belongs.
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

// get returns the newest version of a key that is not newer than sequence.
func (m *versionMap) get(hash uint32, key []byte, sequence uint64) (memVersion, bool) {
	at, _, found := m.find(m.slots.Load(), hash, key)
	if !found {
		return memVersion{}, false
	}
	return m.versionAt(at, sequence)
}

// A look-up waits for memory twice: for the slot, and for key and version, which most
// likely are one run. prefetchSlot and prefetchRun have these fetched for a key, one
// step after the other, so that who looks up many keys waits for all at once.

func (m *versionMap) prefetchSlot(hash uint32) {
	t := m.slots.Load()
	prefetch.Of(&t.slots[hash>>t.shift])
}

// prefetchRun has the first key with a hash fetched, most likely the right one, and
// tells whether there is one: if not, then the map does not hold the key.
func (m *versionMap) prefetchRun(hash uint32) bool {
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

// prefetch has fetched what most likely is all of a run.
func (m *versionMap) prefetch(r ref) {
	prefetch.Bytes(m.data[r:min(int(r)+prefetchedEntryBytes, len(m.data))])
}

// prefetchNewest has the newest version of a key fetched, whose run is there already.
func (m *versionMap) prefetchNewest(r ref) { m.prefetch(ref(m.word(r).Load())) }

// prefetchedEntryBytes is what is fetched of a key, and of its newest version, ahead.
const prefetchedEntryBytes = 3 * prefetch.LineBytes

// memVersion is what a key held from some sequence number on. value lies in data.
type memVersion struct {
	sequence  uint64
	tombstone bool
	value     []byte
}

// newest returns the newest version of a key.
func (m *versionMap) newest(at ref) memVersion { return m.version(ref(m.word(at).Load())) }

// versionAt returns the newest version of a key that is not newer than sequence.
func (m *versionMap) versionAt(at ref, sequence uint64) (memVersion, bool) {
	for r := ref(m.word(at).Load()); r != noRef; {
		if v := m.version(r); v.sequence <= sequence {
			return v, true
		}
		r = ref(binary.LittleEndian.Uint32(m.data[r+4:]))
	}
	return memVersion{}, false
}

func (m *versionMap) version(r ref) memVersion {
	b := m.data[r:]
	packed := binary.LittleEndian.Uint32(b[8:])
	end := versionHeaderBytes + packed>>1
	sequence := m.first + uint64(binary.LittleEndian.Uint32(b))
	return memVersion{sequence, packed&1 != 0, b[versionHeaderBytes:end:end]}
}

// add puts a version in front of those of its key. Its sequence number must be above
// all that were added before, and room enough for maxRunBytes, key and value.
func (m *versionMap) add(hash uint32, key []byte, v memVersion) {
	if m.end == firstRun {
		m.first = v.sequence
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
		t = m.grow(t)
		_, slot, _ = m.find(t, hash, key)
	}
	if m.count++; m.count > keysOf(m.needed) {
		m.needed++
	}
	if m.count == 1 {
		m.shared = len(key)
	} else if first := m.sharedKey(); !bytes.HasPrefix(key, first) {
		m.shared = commonPrefix(key, first)
	}
	b := m.data[run:]
	binary.LittleEndian.PutUint32(b[4:], uint32(len(key)))
	copy(b[keyHeaderBytes:], key)
	version := run + keyHeaderBytes + ref(len(key))
	binary.LittleEndian.PutUint32(b, uint32(version))
	m.putVersion(version, v, noRef)
	slot.Store(uint64(hash)<<32 | uint64(run))
}

// sharedKey is what all keys begin with. Only for the goroutine that writes, or when
// none does any more.
func (m *versionMap) sharedKey() []byte {
	if m.count == 0 {
		return nil
	}
	return m.key(firstRun)[:m.shared]
}

// putVersion writes the last part of a run.
func (m *versionMap) putVersion(r ref, v memVersion, older ref) {
	b := m.data[r:]
	binary.LittleEndian.PutUint32(b, uint32(v.sequence-m.first))
	binary.LittleEndian.PutUint32(b[4:], uint32(older))
	packed := uint32(len(v.value)) << 1
	if v.tombstone {
		packed |= 1
	}
	binary.LittleEndian.PutUint32(b[8:], packed)
	copy(b[versionHeaderBytes:], v.value)
	m.end = runEnd(r, len(v.value))
	if m.end > m.taken {
		taken := m.memory.Touched(m.end)
		m.take(taken - m.taken)
		m.taken = taken
	}
}

// runEnd is where the run behind that of a version begins.
func runEnd(version ref, valueBytes int) int {
	return (int(version) + versionHeaderBytes + valueBytes + runAlignment - 1) &^ (runAlignment - 1)
}

// grow replaces the table by one of twice its size.
func (m *versionMap) grow(old *slotTable) *slotTable {
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
