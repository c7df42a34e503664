package subset

// roundRobin assigns the backends in order, k to each frontend.
type roundRobin struct{}

func (roundRobin) Name() string { return "roundrobin" }

func (roundRobin) Subset(dst []int, frontend, frontends, backends, k int) []int {
	q := clamp(frontend, frontends, backends, k)
	if q.k == 0 {
		return dst
	}
	first := q.frontend % q.backends * uint64(q.k)
	for i := range uint64(q.k) {
		dst = append(dst, int((first+i)%q.backends))
	}
	return dst
}
