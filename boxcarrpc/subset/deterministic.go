package subset

// deterministic deals the backends out in rounds: as many frontends as have
// subsets without overlap make a round, and each round shuffles anew. What is
// left over in a round, fewer than k backends, is chosen before the shuffle, and
// goes around. It is Google's former default, from Beyer et al., "Site
// Reliability Engineering", chapter 20, with the article's improvement.
type deterministic struct {
	// permute returns where the number i of n is in the shuffle of a round.
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
	afterLeft := (round%q.backends*left + left) % q.backends // they go around
	for i := range size {
		n := a.permute(round, q.backends-left, first+i)
		dst = append(dst, int((afterLeft+n)%q.backends))
	}
	return dst
}
