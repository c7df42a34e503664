// Package chance draws the random numbers of a simulation by key.
//
// A shared generator gives each caller the next number, so one more call of one goroutine
// changes all later decisions of all others. Here a number depends only on the seed, the name
// of the source, and how often that source was asked: operations that run in another order
// still get the same numbers.
//
//	c := chance.New(seed).Sub("disk").Sub("server-1")
//	latency := c.Next("fsync").Duration(time.Millisecond, 5*time.Millisecond)
//
// All types are safe for concurrent use, except a Draw.
package chance

import (
	"math/bits"
	"sync"
	"time"
)

// Chance is a source of random numbers.
type Chance struct {
	seed uint64

	mu struct {
		sync.Mutex
		asked map[string]uint64 // by key: how many draws
	}
}

// New returns the source of a seed.
func New(seed uint64) *Chance {
	c := &Chance{seed: mix(seed)}
	c.mu.asked = map[string]uint64{}
	return c
}

// Sub returns an independent source. The same name gives the same source.
func (c *Chance) Sub(name string) *Chance { return New(c.seed ^ hash(name)) }

// Next returns the next draw of a key. Its numbers depend on the seed, the key, and the number
// of draws of this key before.
func (c *Chance) Next(key string) Draw {
	c.mu.Lock()
	n := c.mu.asked[key]
	c.mu.asked[key] = n + 1
	c.mu.Unlock()
	return Draw{mix(mix(c.seed^hash(key)) + n*step)}
}

// Draw is a sequence of random numbers. It implements rand.Source of math/rand/v2.
type Draw struct{ state uint64 }

// step is the odd increment of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom
// number generators", OOPSLA 2014).
const step = 0x9e3779b97f4a7c15

// Uint64 returns a number.
func (d *Draw) Uint64() uint64 {
	d.state += step
	return mix(d.state)
}

// Int returns a number in [0, n), for n > 0.
func (d *Draw) Int(n int) int {
	high, _ := bits.Mul64(d.Uint64(), uint64(n))
	return int(high)
}

// Between returns a number in [from, to].
func (d *Draw) Between(from, to int) int { return from + d.Int(to-from+1) }

// Bool returns true with probability p.
func (d *Draw) Bool(p float64) bool { return float64(d.Uint64()>>11)/(1<<53) < p }

// Duration returns a duration in [from, to], uniform in nanoseconds.
func (d *Draw) Duration(from, to time.Duration) time.Duration {
	return from + time.Duration(d.Int(int(to-from)+1))
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// hash is FNV-1a, which is equal in all processes.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return mix(h)
}
