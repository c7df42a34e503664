package subset

// random shuffles the backends separately for each frontend and takes the first k.
type random struct{ seed uint64 }

func (random) Name() string { return "random" }

func (a random) Subset(dst []int, frontend, frontends, backends, k int) []int {
	q := clamp(frontend, frontends, backends, k)
	if q.k == 0 {
		return dst
	}
	shuffle := newPermutation(hash1(a.seed, q.frontend), q.backends)
	for i := range uint64(q.k) {
		dst = append(dst, int(shuffle.at(i)))
	}
	return dst
}
