package lsm

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"
)

// skiplist is an ordered map from keys to chains of versions, newest first.
//
// It lives in two arenas. A tower in words is a node:
//
//	prefix | key ref | newest version ref (atomic) | next ref of each level (atomic)
//
// prefix holds the first eight bytes of the key, big-endian, so that most
// comparisons do not touch the key. In data lie, unaligned,
//
//	key:     length u32 | bytes
//	version: sequence u64 | older version's ref u64 | length<<1 + tombstone u32 | value
//
// Concurrency: one goroutine writes, any number read, without locks.
//   - A run is written whole before the atomic store that makes it reachable,
//     and is never written again, but for a tower's atomic words.
//   - A tower is linked from the bottom up, so whoever meets it on some level
//     finds it on all lower ones.
//   - Nothing is ever unlinked.
type skiplist struct {
	words  *arena[atomic.Uint64]
	data   *arena[byte]
	head   ref
	height atomic.Int32 // levels in use; only a hint to readers
	random uint64
}

const (
	maxHeight = 16

	towerPrefix  = 0
	towerKey     = 1
	towerVersion = 2
	towerNext    = 3

	versionHeaderBytes = 8 + 8 + 4
)

// noRef is the end of a level and of a chain. The head's tower and a
// placeholder in data take the runs of that ref.
const noRef ref = 0

func newSkiplist(grown func(bytes int)) *skiplist {
	s := &skiplist{
		words:  newArena[atomic.Uint64](8, grown),
		data:   newArena[byte](1, grown),
		random: 0x9E3779B97F4A7C15,
	}
	s.head, _ = s.words.alloc(towerNext + maxHeight)
	s.data.alloc(1)
	s.height.Store(1)
	return s
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

// used is the number of bytes taken so far. Only for the goroutine that writes.
func (s *skiplist) used() int64 { return 8*int64(s.words.handed) + int64(s.data.handed) }

func (s *skiplist) key(node ref) []byte {
	b := s.data.at(ref(s.words.at(node)[towerKey].Load()))
	n := binary.LittleEndian.Uint32(b)
	return b[4 : 4+n : 4+n]
}

// compare orders the key of a tower against a key with the given prefix.
func (s *skiplist) compare(tower []atomic.Uint64, key []byte, prefix uint64) int {
	if p := tower[towerPrefix].Load(); p != prefix {
		if p < prefix {
			return -1
		}
		return 1
	}
	b := s.data.at(ref(tower[towerKey].Load()))
	return bytes.Compare(b[4:4+binary.LittleEndian.Uint32(b)], key)
}

// seek returns the last node below key and the first at or above it, and
// whether the latter is key itself. If path is not nil, the last node below key
// of every level is put there.
func (s *skiplist) seek(key []byte, path *[maxHeight]ref) (below, at ref, found bool) {
	prefix := keyPrefix(key)
	node, past := s.head, noRef
	for level := int(s.height.Load()) - 1; level >= 0; level-- {
		for {
			next := ref(s.words.at(node)[towerNext+level].Load())
			// past was compared on the level above.
			if next == noRef || next == past {
				at = next
				break
			}
			c := s.compare(s.words.at(next), key, prefix)
			if c >= 0 {
				at, past, found = next, next, c == 0
				break
			}
			node = next
		}
		if path != nil {
			path[level] = node
		}
	}
	return node, at, at != noRef && found
}

// next returns the node behind a node, or noRef.
func (s *skiplist) next(node ref) ref {
	return ref(s.words.at(node)[towerNext].Load())
}

// first returns the first node, or noRef.
func (s *skiplist) first() ref { return s.next(s.head) }

// tail returns the last node, or the head if there is none.
func (s *skiplist) tail() ref {
	node := s.head
	for level := int(s.height.Load()) - 1; level >= 0; level-- {
		for {
			next := ref(s.words.at(node)[towerNext+level].Load())
			if next == noRef {
				break
			}
			node = next
		}
	}
	return node
}

// memVersion is what a key held from some sequence number on. value lies in the arena.
type memVersion struct {
	sequence  uint64
	tombstone bool
	value     []byte
}

// versionAt returns the newest version of a node that is not newer than sequence.
func (s *skiplist) versionAt(node ref, sequence uint64) (memVersion, bool) {
	r := ref(s.words.at(node)[towerVersion].Load())
	for r != noRef {
		b := s.data.at(r)
		if got := binary.LittleEndian.Uint64(b); got <= sequence {
			packed := binary.LittleEndian.Uint32(b[16:])
			end := versionHeaderBytes + packed>>1
			return memVersion{got, packed&1 != 0, b[versionHeaderBytes:end:end]}, true
		}
		r = ref(binary.LittleEndian.Uint64(b[8:]))
	}
	return memVersion{}, false
}

// add puts a version in front of those of its key. Its sequence number must be
// above all that were added before.
func (s *skiplist) add(key []byte, v memVersion) {
	var path [maxHeight]ref
	for i := range path {
		path[i] = s.head
	}
	_, node, found := s.seek(key, &path)
	if found {
		tower := s.words.at(node)
		older := ref(tower[towerVersion].Load())
		tower[towerVersion].Store(uint64(s.newVersion(v, older)))
		return
	}
	keyRef, b := s.data.alloc(4 + len(key))
	binary.LittleEndian.PutUint32(b, uint32(len(key)))
	copy(b[4:], key)
	height := s.randomHeight()
	node, tower := s.words.alloc(towerNext + height)
	tower[towerPrefix].Store(keyPrefix(key))
	tower[towerKey].Store(uint64(keyRef))
	tower[towerVersion].Store(uint64(s.newVersion(v, noRef)))
	for level := range height {
		before := s.words.at(path[level])
		tower[towerNext+level].Store(before[towerNext+level].Load())
	}
	for level := range height {
		s.words.at(path[level])[towerNext+level].Store(uint64(node))
	}
	if height > int(s.height.Load()) {
		s.height.Store(int32(height))
	}
}

func (s *skiplist) newVersion(v memVersion, older ref) ref {
	r, b := s.data.alloc(versionHeaderBytes + len(v.value))
	binary.LittleEndian.PutUint64(b, v.sequence)
	binary.LittleEndian.PutUint64(b[8:], uint64(older))
	packed := uint32(len(v.value)) << 1
	if v.tombstone {
		packed |= 1
	}
	binary.LittleEndian.PutUint32(b[16:], packed)
	copy(b[versionHeaderBytes:], v.value)
	return r
}

// randomHeight returns h with probability 3/4 times 1/4 to the power of h-1.
func (s *skiplist) randomHeight() int {
	s.random ^= s.random << 13
	s.random ^= s.random >> 7
	s.random ^= s.random << 17
	height := 1
	for r := s.random >> 16; height < maxHeight && r&3 == 0; r >>= 2 {
		height++
	}
	return height
}
