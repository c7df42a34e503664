package policy

import "math/rand/v2"

// random uses a random server. With n requests on n servers 36.8 % (1/e) of them get none, and the
// busiest gets about ln(n) / ln(ln(n)). Mitzenmacher, "The Power of Two Choices in Randomized Load
// Balancing", 1996, section 1.
type random struct{ set }

// Pick implements Policy.
func (p *random) Pick(_ int64, tried []int32, rng *rand.PCG) (Choice, bool) {
	entry, ok := p.any(tried, rng)
	if !ok {
		return Choice{}, false
	}
	return p.take(entry)
}
