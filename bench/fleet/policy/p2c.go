package policy

import "math/rand/v2"

// p2c draws two servers and uses the one with fewer of this client's requests. Mitzenmacher, "The Power of Two Choices in Randomized
// Load Balancing", 1996. It is the default of Envoy's LEAST_REQUEST and gRPC's
// least_request_experimental. A client with less than one concurrent request chooses at random.
type p2c struct{ set }

// Pick implements Policy.
func (p *p2c) Pick(_ int64, tried []int32, rng *rand.PCG) (Choice, bool) {
	a, b, ok := p.two(tried, rng)
	if !ok {
		return Choice{}, false
	}
	if p.members[b].inFlight < p.members[a].inFlight {
		a = b
	}
	return p.take(a)
}
