// Package zipf draws numbers with a Zipfian distribution.
package zipf

import (
	"math"
	"math/rand/v2"
)

// Zipf draws numbers below n, small ones more often, as YCSB does: Gray et al.,
// "Quickly generating billion-record synthetic databases", SIGMOD 1994.
type Zipf struct {
	n                 float64
	alpha, zetaN, eta float64
}

// Theta is the skew, YCSB's default.
const Theta = 0.99

// New draws numbers from 0 to n-1. It takes time proportional to n.
func New(n int) *Zipf {
	zeta := 0.0
	for i := range n {
		zeta += math.Pow(float64(i+1), -Theta)
	}
	zeta2 := 1 + math.Pow(2, -Theta)
	return &Zipf{
		n: float64(n), alpha: 1 / (1 - Theta), zetaN: zeta,
		eta: (1 - math.Pow(2/float64(n), 1-Theta)) / (1 - zeta2/zeta),
	}
}

// Draw draws one.
func (z *Zipf) Draw(random *rand.Rand) uint64 {
	u := random.Float64()
	switch uz := u * z.zetaN; {
	case uz < 1:
		return 0
	case uz < 1+math.Pow(0.5, Theta):
		return 1
	}
	return uint64(min(z.n-1, z.n*math.Pow(z.eta*u-z.eta+1, z.alpha)))
}
