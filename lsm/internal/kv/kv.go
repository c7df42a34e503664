// Package kv defines the entries of a store and the interfaces of their sources, and
// merges sorted sources. It knows no file and no memory layout: packages memtable and
// table implement the interfaces.
package kv

import "encoding/binary"

// Size limits.
const (
	MaxKeyBytes   = 64 << 10 // the empty key is legal
	MaxValueBytes = 64 << 20
)

// Entry is a key with its newest value, or the fact that it was deleted.
type Entry struct {
	Key, Value []byte
	Tombstone  bool
}

// Source returns entries in key order, each key once, including tombstones. Tables
// are written from it.
type Source interface {
	// Next appends the next entries to dst, some at a time, none at the end. They are
	// valid until the next call.
	Next(dst []Entry) ([]Entry, error)
}

// Iterator iterates over entries in key order, each key once, including
// tombstones. It can be positioned anywhere and moves in both directions; a new one has
// no position. Positioning calls report whether there is an entry; Next and Prev
// require a current entry. Entries are valid until the next positioning call.
// PrefetchIndex and PrefetchBlock must be called inside vfs.Guard.
type Iterator interface {
	First() bool
	Last() bool
	SeekGE(key []byte) bool
	SeekLT(key []byte) bool
	Next() bool
	Prev() bool
	// PrefetchIndex and then PrefetchBlock prefetch the memory that a seek of key
	// reads.
	PrefetchIndex(key []byte)
	PrefetchBlock(key []byte)
	// Current returns the current entry, always at the same address.
	Current() *Entry
	Err() error
	// Release returns memory to its pools. The iterator may be positioned again.
	Release()
}

// Prefix returns the first eight bytes of a key as a number with the same order.
func Prefix(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var p [8]byte
	copy(p[:], key)
	return binary.BigEndian.Uint64(p[:])
}

// CommonPrefix returns the length of the common prefix of two keys, and so of all keys
// between them.
func CommonPrefix(a, b []byte) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
