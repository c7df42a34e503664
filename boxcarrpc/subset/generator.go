package subset

import "math/bits"

// All randomness comes from SplitMix64 (Steele, Lea and Flood, "Fast Splittable
// Pseudorandom Number Generators", 2014). Its output function is also a good hash. It
// takes a few lines in any language, so that other clients can compute the same
// subsets.

// golden is 2^64 divided by the golden ratio.
const golden = 0x9e3779b97f4a7c15

// mix is SplitMix64's output function, a bijection.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func hash1(seed, a uint64) uint64    { return mix(mix(seed+golden) + a + golden) }
func hash2(seed, a, b uint64) uint64 { return hash1(hash1(seed, a), b) }

// generator is SplitMix64.
type generator uint64

func (g *generator) next() uint64 {
	*g += golden
	return mix(uint64(*g))
}

// below draws a number below n by Lemire's multiplication, without correcting the
// bias, which is under n/2^64.
func (g *generator) below(n uint64) uint64 {
	number, _ := bits.Mul64(g.next(), n)
	return number
}

// permutation shuffles the numbers below n without a table. It applies a Feistel
// network (Luby and Rackoff, 1988) on the next power of four until the result is below
// n ("cycle walking", Black and Rogaway, 2002), which takes fewer than four steps on
// average.
type permutation struct {
	key, n uint64
	half   int // bits of half a number
}

// Four Feistel rounds give a pseudorandom permutation. For small n the halves have few
// bits, and two more rounds remove the remaining pattern.
const feistelRounds = 6

func newPermutation(key, n uint64) permutation {
	return permutation{key: key, n: n, half: (bits.Len64(n-1) + 1) / 2}
}

// at returns the number at index i, which is below n.
func (p permutation) at(i uint64) uint64 {
	for {
		mask := uint64(1)<<p.half - 1
		left, right := i>>p.half, i&mask
		for round := range uint64(feistelRounds) {
			left, right = right, left^hash2(p.key, round, right)&mask
		}
		if i = left<<p.half | right; i < p.n {
			return i
		}
	}
}
