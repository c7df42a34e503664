package lsm

import "encoding/binary"

// Size limits and their errors.
const (
	MaxKeyBytes   = 64 << 10 // ErrKeyTooLarge; the empty key is legal
	MaxValueBytes = 64 << 20 // ErrValueTooLarge
)

// entry is a key with its newest value, or the fact that it was deleted.
type entry struct {
	key, value []byte
	tombstone  bool
}

// entrySource returns entries in key order, each key once, including tombstones. Tables
// are written from it.
type entrySource interface {
	// next appends the next entries to dst, some at a time, none at the end. They are
	// valid until the next call.
	next(dst []entry) ([]entry, error)
}

// internalIterator iterates over entries in key order, each key once, including
// tombstones. It can be positioned anywhere and moves in both directions; a new one has
// no position. Positioning calls report whether there is an entry; next and prev
// require a current entry. Entries are valid until the next positioning call.
// prefetchIndex and prefetchBlock must be called inside vfs.Guard.
type internalIterator interface {
	first() bool
	last() bool
	seekGE(key []byte) bool
	seekLT(key []byte) bool
	next() bool
	prev() bool
	// prefetchIndex and then prefetchBlock prefetch the memory that a seek of key
	// reads.
	prefetchIndex(key []byte)
	prefetchBlock(key []byte)
	// shown returns the current entry, always at the same address.
	shown() *entry
	err() error
	// release returns memory to its pools. The iterator may be positioned again.
	release()
}

// keyPrefix returns the first eight bytes of a key as a number with the same order.
func keyPrefix(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var p [8]byte
	copy(p[:], key)
	return binary.BigEndian.Uint64(p[:])
}

// commonPrefix returns the length of the common prefix of two keys, and so of all keys
// between them.
func commonPrefix(a, b []byte) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
