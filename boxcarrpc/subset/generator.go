package subset

import "math/bits"

// Everything random comes from SplitMix64 (Steele, Lea and Flood, "Fast
// Splittable Pseudorandom Number Generators", 2014), whose output function also
// makes a good hash. It is a few lines in any language, which matters because
// another client has to choose the same subsets.

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

// below draws a number below n by Lemire's multiplication. It is not corrected
// for its bias, which is under n/2^64.
func (g *generator) below(n uint64) uint64 {
	number, _ := bits.Mul64(g.next(), n)
	return number
}

// permutation shuffles the numbers below n without a table: a Feistel network
// (Luby and Rackoff, 1988) on the next power of four, followed until it comes to
// a number below n (Black and Rogaway, 2002, "cycle walking"), which takes under
// four steps on average.
type permutation struct {
	key, n uint64
	half   int // bits of half a number
}

// feistelRounds: four give a pseudorandom permutation; the halves of small n are
// few bits, and two more even out what is left to see in them.
const feistelRounds = 6

func newPermutation(key, n uint64) permutation {
	return permutation{key: key, n: n, half: (bits.Len64(n-1) + 1) / 2}
}

// at is where the number i, below n, is shuffled to.
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
