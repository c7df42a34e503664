package lsm

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"sync/atomic"

	"docstore/internal/prefetch"
)

// versionMap is an unordered map from keys to chains of versions, newest first.
// What orders its keys, when that is asked for, is memtableOrder.
//
// It is an open-addressing hash table of nodes. A slot, 0 if it is empty, is
//
//	hash u32 | node u32
//
// and its home is given by the upper bits of the hash: a larger table is filled from
// a smaller one in order, and without a look at any key. Nodes lie in an arena; in
// data lie, unaligned and the first version right behind its key,
//
//	key:     length u32 | bytes
//	version: sequence u64 | older version's ref u64 | length<<1 + tombstone u32 | value
//
// Concurrency: one goroutine writes, any number read, without locks.
//   - A run is written whole before the atomic store that makes it reachable: that
//     of a node's newest version, and then that of the node's slot. It is never
//     written again, but for a node's newest version.
//   - A slot goes from empty to a node once and never changes again. Nothing is
//     ever removed.
//   - A larger table holds all of the smaller one before it is published, and only
//     it is written from then on. So who loads the table after the sequence number
//     up to which writes are visible finds all of these, even if the table is
//     replaced while it is searched.
type versionMap struct {
	slots atomic.Pointer[slotTable]
	nodes *arena[node]
	data  *arena[byte]
	count int // of nodes

	grown func(bytes int)
}

type slotTable struct {
	slots []atomic.Uint64 // a power of two
	shift uint            // a hash shifted right by it is its home
}

// node is a key with its versions.
type node struct {
	prefix uint64 // the first eight bytes of the key, big-endian
	key    ref
	newest atomic.Uint64 // ref of the newest version; noRef: not published yet
}

const (
	nodeBytes = 24

	versionHeaderBytes = 8 + 8 + 4

	firstSlotBits = 6

	// A node's number is its chunk and its place there.
	nodeIndexBits = 13
)

// The nodes of a chunk are numbered within nodeIndexBits.
const _ = uint(1<<nodeIndexBits - maxChunkBytes/nodeBytes)

// noRef is the end of a chain. A placeholder in data takes its run.
const noRef ref = 0

// hashSeed makes where a key goes differ from process to process, so that nobody
// can choose keys that all go to one place.
var hashSeed = maphash.MakeSeed()

func hashKey(key []byte) uint32 { return uint32(maphash.Bytes(hashSeed, key) >> 32) }

// newVersionMap returns an empty map with room for as many keys as slotBits tell.
func newVersionMap(slotBits uint, grown func(bytes int)) *versionMap {
	m := &versionMap{
		nodes: newArena[node](nodeBytes, &spareNodes, grown),
		data:  newArena[byte](1, &spareBytes, grown),
		grown: grown,
	}
	m.data.alloc(1)
	m.slots.Store(m.newSlots(max(slotBits, firstSlotBits)))
	return m
}

func (m *versionMap) newSlots(bits uint) *slotTable {
	m.grown(8 << bits)
	return &slotTable{slots: make([]atomic.Uint64, 1<<bits), shift: 32 - bits}
}

// slotBits tells how large the map has become, for another that will be filled
// alike and so need not grow.
func (m *versionMap) slotBits() uint { return 32 - m.slots.Load().shift }

// keyPrefix returns the first eight bytes of a key as a number of the same order.
func keyPrefix(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var p [8]byte
	copy(p[:], key)
	return binary.BigEndian.Uint64(p[:])
}

// nodeNumber and nodeRef turn a node's place into its number and back.
func nodeNumber(r ref) uint32 { return uint32(r>>32<<nodeIndexBits | r&(1<<nodeIndexBits-1)) }
func nodeRef(n uint32) ref {
	return ref(n>>nodeIndexBits)<<32 | ref(n&(1<<nodeIndexBits-1))
}

// used is the number of bytes taken so far. Only for the goroutine that writes.
func (m *versionMap) used() int64 {
	return nodeBytes*int64(m.nodes.handed) + int64(m.data.handed) + 8*int64(len(m.slots.Load().slots))
}

// release hands on the memory. Nobody may use the map any more.
func (m *versionMap) release() {
	m.nodes.release()
	m.data.release()
}

func (m *versionMap) node(r ref) *node { return &m.nodes.at(r)[0] }

func (m *versionMap) key(node ref) []byte { return m.keyAt(m.node(node).key) }

func (m *versionMap) keyAt(r ref) []byte {
	b := m.data.at(r)
	n := binary.LittleEndian.Uint32(b)
	return b[4 : 4+n : 4+n]
}

// find returns the node of a key and true, or the empty slot where it belongs.
func (m *versionMap) find(t *slotTable, hash uint32, key []byte) (node ref, slot *atomic.Uint64, found bool) {
	mask := uint32(len(t.slots) - 1)
	for at := hash >> t.shift; ; at++ {
		slot := &t.slots[at&mask]
		s := slot.Load()
		if s == 0 {
			return noRef, slot, false
		}
		if uint32(s>>32) == hash {
			if node := nodeRef(uint32(s) - 1); bytes.Equal(m.key(node), key) {
				return node, slot, true
			}
		}
	}
}

// get returns the newest version of a key that is not newer than sequence.
func (m *versionMap) get(hash uint32, key []byte, sequence uint64) (memVersion, bool) {
	node, _, found := m.find(m.slots.Load(), hash, key)
	if !found {
		return memVersion{}, false
	}
	return m.versionAt(node, sequence)
}

// A look-up waits for memory three times: for the slot, for the node, and for key and
// version. prefetchSlot, prefetchNode and prefetchEntry have these fetched for a key,
// one step after the other, so that who looks up many keys waits for all at once.

func (m *versionMap) prefetchSlot(hash uint32) {
	t := m.slots.Load()
	prefetch.Of(&t.slots[hash>>t.shift])
}

// prefetchNode returns the first node with a hash, most likely the key's, and false
// if there is none: then the map does not hold the key.
func (m *versionMap) prefetchNode(hash uint32) (*node, bool) {
	t := m.slots.Load()
	mask := uint32(len(t.slots) - 1)
	for at := hash >> t.shift; ; at++ {
		s := t.slots[at&mask].Load()
		if s == 0 {
			return nil, false
		}
		if uint32(s>>32) == hash {
			n := m.node(nodeRef(uint32(s) - 1))
			prefetch.Of(n)
			return n, true
		}
	}
}

func (m *versionMap) prefetchEntry(n *node) {
	for _, at := range [...]ref{n.key, ref(n.newest.Load())} {
		b := m.data.at(at)
		prefetch.Bytes(b[:min(len(b), prefetchedEntryBytes)])
	}
}

// prefetchedEntryBytes is what is fetched of a key, and of its newest version, ahead.
const prefetchedEntryBytes = 3 * prefetch.LineBytes

// memVersion is what a key held from some sequence number on. value lies in the arena.
type memVersion struct {
	sequence  uint64
	tombstone bool
	value     []byte
}

// versionAt returns the newest version of a node that is not newer than sequence.
func (m *versionMap) versionAt(node ref, sequence uint64) (memVersion, bool) {
	r := ref(m.node(node).newest.Load())
	for r != noRef {
		b := m.data.at(r)
		if got := binary.LittleEndian.Uint64(b); got <= sequence {
			return decodeVersion(b), true
		}
		r = ref(binary.LittleEndian.Uint64(b[8:]))
	}
	return memVersion{}, false
}

func decodeVersion(b []byte) memVersion {
	packed := binary.LittleEndian.Uint32(b[16:])
	end := versionHeaderBytes + packed>>1
	return memVersion{binary.LittleEndian.Uint64(b), packed&1 != 0, b[versionHeaderBytes:end:end]}
}

// add puts a version in front of those of its key. Its sequence number must be
// above all that were added before.
func (m *versionMap) add(hash uint32, key []byte, v memVersion) {
	t := m.slots.Load()
	node, slot, found := m.find(t, hash, key)
	if found {
		newest := &m.node(node).newest
		older := ref(newest.Load())
		at, b := m.data.alloc(versionHeaderBytes + len(v.value))
		v.encode(b, older)
		newest.Store(uint64(at))
		return
	}
	if m.count >= len(t.slots)/3*2 {
		t = m.grow(t)
		_, slot, _ = m.find(t, hash, key)
	}
	m.count++
	// Key and version are one run: who compares the one has fetched the other.
	keyBytes := 4 + len(key)
	at, b := m.data.alloc(keyBytes + versionHeaderBytes + len(v.value))
	binary.LittleEndian.PutUint32(b, uint32(len(key)))
	copy(b[4:], key)
	v.encode(b[keyBytes:], noRef)
	node, fresh := m.nodes.alloc(1)
	fresh[0].prefix, fresh[0].key = keyPrefix(key), at
	fresh[0].newest.Store(uint64(at) + uint64(keyBytes))
	slot.Store(uint64(hash)<<32 | uint64(nodeNumber(node)+1))
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
	m.grown(-8 * len(old.slots))
	return t
}

func (v memVersion) encode(b []byte, older ref) {
	binary.LittleEndian.PutUint64(b, v.sequence)
	binary.LittleEndian.PutUint64(b[8:], uint64(older))
	packed := uint32(len(v.value)) << 1
	if v.tombstone {
		packed |= 1
	}
	binary.LittleEndian.PutUint32(b[16:], packed)
	copy(b[versionHeaderBytes:], v.value)
}
