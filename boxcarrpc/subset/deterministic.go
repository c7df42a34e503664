package subset

// deterministic assigns the backends in rounds. A round has as many frontends as have
// disjoint subsets, and its own shuffle. The fewer than k backends that a round leaves
// over are chosen before the shuffle and rotate from round to round. It is Google's
// former default, from Beyer et al., "Site Reliability Engineering", chapter 20, with
// the article's improvement.
type deterministic struct {
	// permute returns the number at index i of a round's shuffle of n numbers.
	permute func(round, n, i uint64) uint64
}

func newDeterministic(seed uint64) deterministic {
	return deterministic{func(round, n, i uint64) uint64 {
		return newPermutation(hash1(seed, round), n).at(i)
	}}
}

func (deterministic) Name() string { return "deterministic" }

func (a deterministic) Subset(dst []int, frontend, frontends, backends, k int) []int {
	q := clamp(frontend, frontends, backends, k)
	if q.k == 0 {
		return dst
	}
	size := uint64(q.k)
	perRound := q.backends / size
	left := q.backends % size
	round, first := q.frontend/perRound, q.frontend%perRound*size
	afterLeft := (round%q.backends*left + left) % q.backends
	for i := range size {
		n := a.permute(round, q.backends-left, first+i)
		dst = append(dst, int((afterLeft+n)%q.backends))
	}
	return dst
}
