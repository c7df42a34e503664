package shard

import (
	"encoding/binary"
	"math/bits"
)

// The primes of XXH64.
const (
	prime1 uint64 = 11400714785074694791
	prime2 uint64 = 14029467366897019727
	prime3 uint64 = 1609587929392839161
	prime4 uint64 = 9650029242287828579
	prime5 uint64 = 2870177450012600261
)

// sum returns the XXH64 of an id. Package xxhash takes a seed only for its Digest, which costs
// five times as much for an id of 14 bytes; a batch hashes each id on both sides.
func sum(seed uint64, id []byte) uint64 {
	n := uint64(len(id))
	h := seed + prime5
	if n >= 32 {
		a, b, c, d := seed+prime1+prime2, seed+prime2, seed, seed-prime1
		for ; len(id) >= 32; id = id[32:] {
			a = round(a, binary.LittleEndian.Uint64(id))
			b = round(b, binary.LittleEndian.Uint64(id[8:]))
			c = round(c, binary.LittleEndian.Uint64(id[16:]))
			d = round(d, binary.LittleEndian.Uint64(id[24:]))
		}
		h = bits.RotateLeft64(a, 1) + bits.RotateLeft64(b, 7) + bits.RotateLeft64(c, 12) + bits.RotateLeft64(d, 18)
		for _, lane := range [...]uint64{a, b, c, d} {
			h = (h^round(0, lane))*prime1 + prime4
		}
	}
	h += n
	for ; len(id) >= 8; id = id[8:] {
		h = bits.RotateLeft64(h^round(0, binary.LittleEndian.Uint64(id)), 27)*prime1 + prime4
	}
	if len(id) >= 4 {
		h = bits.RotateLeft64(h^uint64(binary.LittleEndian.Uint32(id))*prime1, 23)*prime2 + prime3
		id = id[4:]
	}
	for _, b := range id {
		h = bits.RotateLeft64(h^uint64(b)*prime5, 11) * prime1
	}
	h = (h ^ h>>33) * prime2
	h = (h ^ h>>29) * prime3
	return h ^ h>>32
}

func round(lane, input uint64) uint64 { return bits.RotateLeft64(lane+input*prime2, 31) * prime1 }
