package bloom

import (
	"encoding/binary"
	"math/bits"
)

// Hash is the hash of a key. All filters use the same hash, so a lookup computes it
// once.
//
// It holds the four numbers that bloom/v3 derives the locations of a key from. They
// are computed here because the library returns them only in an allocated slice. Tests
// compare both.
type Hash struct{ h1, h2, h3, h4 uint64 }

// HashKey hashes a key with 128-bit murmur3: the key itself, and the key with a byte 1
// appended.
func HashKey(key []byte) Hash {
	var a, b uint64
	rest := key
	for ; len(rest) >= 16; rest = rest[16:] {
		a, b = mixBlock(a, b, binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint64(rest[8:]))
	}
	var tail [16]byte
	copy(tail[:], rest)
	k1, k2 := binary.LittleEndian.Uint64(tail[:]), binary.LittleEndian.Uint64(tail[8:])

	var h Hash
	h.h1, h.h2 = finish(a^mix1(k1), b^mix2(k2), uint64(len(key)))

	// The same with a byte 1 appended to the key.
	switch n := uint(len(rest)); {
	case n < 8:
		k1 |= 1 << (8 * n)
	case n < 15:
		k2 |= 1 << (8 * (n - 8))
	default: // the appended byte completes the block
		a, b = mixBlock(a, b, k1, k2|1<<56)
		k1, k2 = 0, 0
	}
	h.h3, h.h4 = finish(a^mix1(k1), b^mix2(k2), uint64(len(key))+1)
	return h
}

const (
	c1 = 0x87c37b91114253d5
	c2 = 0x4cf5ad432745937f
)

func mix1(k uint64) uint64 { return bits.RotateLeft64(k*c1, 31) * c2 }
func mix2(k uint64) uint64 { return bits.RotateLeft64(k*c2, 33) * c1 }

func mixBlock(a, b, k1, k2 uint64) (uint64, uint64) {
	a ^= mix1(k1)
	a = (bits.RotateLeft64(a, 27)+b)*5 + 0x52dce729
	b ^= mix2(k2)
	b = (bits.RotateLeft64(b, 31)+a)*5 + 0x38495ab5
	return a, b
}

func finish(a, b, length uint64) (uint64, uint64) {
	a ^= length
	b ^= length
	a += b
	b += a
	a, b = avalanche(a), avalanche(b)
	a += b
	b += a
	return a, b
}

func avalanche(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return x
}

// location returns the i-th location of the key, before reduction modulo the bits of a
// page, as bloom/v3 does.
func (h Hash) location(i uint64) uint64 {
	base, step := h.h1, h.h3
	if i&1 != 0 {
		base = h.h2
	}
	if (i+1)&2 != 0 { // i mod 4 is 1 or 2
		step = h.h4
	}
	return base + i*step
}
