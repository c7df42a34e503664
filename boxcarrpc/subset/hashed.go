package subset

import (
	"cmp"
	"slices"
)

// consistent places frontends and backends at random on a circle. A frontend uses the
// backends clockwise of it. Karger et al., "Consistent Hashing and Random Trees", 1997.
type consistent struct{ seed uint64 }

func (consistent) Name() string { return "consistent" }

// The kinds of task, which separate the hashes of frontends and backends.
const (
	frontendKind = iota
	backendKind
)

func (a consistent) Subset(dst []int, frontend, frontends, backends, k int) []int {
	q := clamp(frontend, frontends, backends, k)
	from := hash2(a.seed, frontendKind, q.frontend)
	return appendNearest(dst, q, func(backend uint64) uint64 {
		return hash2(a.seed, backendKind, backend) - from
	})
}

// rendezvous ranks the backends for each frontend by a hash of both. Thaler and
// Ravishankar, "A Name-Based Mapping Scheme for Rendezvous", 1996.
type rendezvous struct{ seed uint64 }

func (rendezvous) Name() string { return "rendezvous" }

func (a rendezvous) Subset(dst []int, frontend, frontends, backends, k int) []int {
	q := clamp(frontend, frontends, backends, k)
	own := hash1(a.seed, q.frontend)
	return appendNearest(dst, q, func(backend uint64) uint64 { return hash1(own, backend) })
}

// A candidate is a backend with its distance. The lower number breaks ties.
type candidate struct{ distance, backend uint64 }

func compareCandidates(a, b candidate) int {
	return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.backend, b.backend))
}

// appendNearest appends the k backends with the smallest distances, nearest first. It
// visits each backend once and keeps the k nearest in a max-heap, whose top rarely
// changes after the first few backends.
func appendNearest(dst []int, q request, distance func(backend uint64) uint64) []int {
	if q.k == 0 {
		return dst
	}
	heap := make([]candidate, q.k)
	for i := range heap {
		heap[i] = candidate{distance(uint64(i)), uint64(i)}
	}
	slices.SortFunc(heap, func(a, b candidate) int { return compareCandidates(b, a) })
	for backend := uint64(q.k); backend < q.backends; backend++ {
		if c := (candidate{distance(backend), backend}); compareCandidates(c, heap[0]) < 0 {
			heap[0] = c
			sink(heap)
		}
	}
	slices.SortFunc(heap, compareCandidates)
	for _, c := range heap {
		dst = append(dst, int(c.backend))
	}
	return dst
}

// sink restores the heap after its top was replaced.
func sink(heap []candidate) {
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if other := child + 1; other < len(heap) && compareCandidates(heap[other], heap[child]) > 0 {
			child = other
		}
		if compareCandidates(heap[i], heap[child]) >= 0 {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}
