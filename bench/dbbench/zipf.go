package main

import (
	"math"
	"math/rand/v2"
)

// zipf draws numbers below n, small ones more often, as YCSB does: Gray et al.,
// "Quickly generating billion-record synthetic databases", SIGMOD 1994.
type zipf struct {
	n                 float64
	alpha, zetaN, eta float64
}

const zipfTheta = 0.99

func newZipf(n int) *zipf {
	zeta := 0.0
	for i := range n {
		zeta += math.Pow(float64(i+1), -zipfTheta)
	}
	zeta2 := 1 + math.Pow(2, -zipfTheta)
	return &zipf{
		n: float64(n), alpha: 1 / (1 - zipfTheta), zetaN: zeta,
		eta: (1 - math.Pow(2/float64(n), 1-zipfTheta)) / (1 - zeta2/zeta),
	}
}

func (z *zipf) draw(random *rand.Rand) uint64 {
	u := random.Float64()
	switch uz := u * z.zetaN; {
	case uz < 1:
		return 0
	case uz < 1+math.Pow(0.5, zipfTheta):
		return 1
	}
	return uint64(min(z.n-1, z.n*math.Pow(z.eta*u-z.eta+1, z.alpha)))
}
