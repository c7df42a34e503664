package policy

import "math/rand/v2"

// roundRobin uses one server after another. The first one is random, so that clients that start
// together use different ones. It is gRPC's round_robin: https://github.com/grpc/grpc/blob/master/doc/load-balancing.md.
type roundRobin struct {
	set
	place int64
	begun bool
}

// Pick implements Policy.
func (p *roundRobin) Pick(_ int64, tried []int32, rng *rand.PCG) (Choice, bool) {
	n := int64(len(p.ready))
	if n == 0 {
		return Choice{}, false
	}
	if !p.begun {
		p.begun = true
		p.place = uniform(rng, n)
	}
	p.place = (p.place + 1) % n
	return p.take(p.after(p.place, tried))
}
