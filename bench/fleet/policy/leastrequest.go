package policy

import (
	"math/rand/v2"
	"slices"
)

// leastRequest uses the server with the fewest of this client's requests, a random one of several. It
// is HAProxy's leastconn (https://docs.haproxy.org/3.0/configuration.html#balance), limited to the
// requests of one client. It examines every server for each request.
type leastRequest struct{ set }

// Pick implements Policy.
func (p *leastRequest) Pick(_ int64, tried []int32, rng *rand.PCG) (Choice, bool) {
	if len(p.ready) == 0 {
		return Choice{}, false
	}
	least, equals := int32(-1), int64(0)
	for _, entry := range p.ready {
		switch m := &p.members[entry]; {
		case slices.Contains(tried, m.server):
		case least < 0 || m.inFlight < least:
			least, equals = m.inFlight, 1
		case m.inFlight == least:
			equals++
		}
	}
	if least < 0 { // all were tried
		entry, _ := p.any(nil, rng)
		return p.take(entry)
	}
	nth := uniform(rng, equals)
	for _, entry := range p.ready {
		m := &p.members[entry]
		if m.inFlight != least || slices.Contains(tried, m.server) {
			continue
		}
		if nth--; nth < 0 {
			return p.take(entry)
		}
	}
	return Choice{}, false // not reached
}
