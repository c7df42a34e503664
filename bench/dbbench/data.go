package main

import (
	"bytes"
	"encoding/binary"
)

// data generates the entries: key and value of entry i are functions of i and the seed. Keys are
// unique, and in random order unless they are sequential.
type data struct {
	seed       uint64
	keyBytes   int
	prefix     int // leading bytes of a key that are the same in all
	valueBytes int
	sequential bool
	generation uint64 // part of the seed of all values
}

// mix64 is a pseudo-random permutation of 64-bit numbers (the finalizer of MurmurHash3).
func mix64(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// key writes the key of entry i: the common prefix, eight unique bytes, and bytes computed from those.
// A missing key fits between two sequential keys.
func (d data) key(dst []byte, i uint64) []byte {
	dst = dst[:0]
	for n := range d.prefix {
		dst = append(dst, "prefix/"[n%7])
	}
	switch {
	case !d.sequential:
		i = mix64(i ^ d.seed)
	case i >= missing:
		i = 2*(i-missing) + 1
	default:
		i *= 2
	}
	dst = binary.BigEndian.AppendUint64(dst, i)
	for len(dst) < d.keyBytes {
		i = mix64(i + 1)
		dst = binary.BigEndian.AppendUint64(dst, i)
	}
	return dst[:d.keyBytes]
}

// value writes the value of the entry with the given key.
func (d data) value(dst, key []byte) []byte {
	dst = dst[:0]
	at := binary.BigEndian.Uint64(key[len(key)-8:]) + d.generation*0xD1342543DE82EF95
	for len(dst) < d.valueBytes {
		at += 0x9E3779B97F4A7C15
		dst = binary.LittleEndian.AppendUint64(dst, at*0xbf58476d1ce4e5b9)
	}
	return dst[:d.valueBytes]
}

// firstByte returns the first byte of the value at low cost.
func (d data) firstByte(key []byte) byte {
	d.valueBytes = 1
	var word [8]byte
	return d.value(word[:0], key)[0]
}

// right reports whether a value belongs to a key.
func (d data) right(key, value, scratch []byte) bool {
	return len(key) == d.keyBytes && bytes.Equal(value, d.value(scratch, key))
}
