package bloom

import (
	"cmp"
	"slices"
)

// candidate is a page for the ranking.
type candidate struct {
	filter   *Filter
	page     int
	bytes    int64
	worth    float64 // usefulness per byte
	resident bool
}

// swap loads one page and drops others to make space for it.
type swap struct {
	in  *candidate // nil if pages are only dropped
	out []*candidate
}

// A page is loaded only if it is better than the pages that it replaces by this factor
// and by this many saved lookups per window. Otherwise pages of similar usefulness
// would be exchanged on random fluctuations.
const (
	swapFactor = 1.15
	swapGain   = 1
)

func worthwhile(in, out *candidate) bool {
	return in.worth > swapFactor*out.worth+swapGain/float64(in.bytes)
}

// choose returns the swaps that bring the most useful pages into memory. After each
// swap the resident pages fit into room bytes. The most useful pages come in first and
// the least useful go first; among equals, earlier pages are preferred. Free space is
// filled with any page. At most limit bytes come in; more reports that the limit
// excluded pages.
func choose(pages []candidate, room, limit int64, worthwhile func(in, out *candidate) bool) (swaps []swap, more bool) {
	inactive := 0
	for i := range pages {
		if !pages[i].resident {
			inactive++
		}
	}
	in, out := make([]*candidate, 0, inactive), make([]*candidate, 0, len(pages)-inactive)
	for i := range pages {
		if p := &pages[i]; p.resident {
			out = append(out, p)
			room -= p.bytes
		} else {
			in = append(in, p)
		}
	}
	slices.SortStableFunc(in, func(a, b *candidate) int { return cmp.Compare(b.worth, a.worth) })
	slices.Reverse(out)
	slices.SortStableFunc(out, func(a, b *candidate) int { return cmp.Compare(a.worth, b.worth) })

	var over swap
	for room < 0 && len(out) > 0 {
		room += out[0].bytes
		over.out, out = append(over.out, out[0]), out[1:]
	}
	if len(over.out) > 0 {
		swaps = append(swaps, over)
	}
	for _, p := range in {
		free, n := room, 0
		for free < p.bytes && n < len(out) && worthwhile(p, out[n]) {
			free += out[n].bytes
			n++
		}
		if free < p.bytes {
			continue // a smaller one may fit
		}
		if limit -= p.bytes; limit < 0 {
			return swaps, true
		}
		swaps = append(swaps, swap{in: p, out: out[:n:n]})
		room, out = free-p.bytes, out[n:]
	}
	return swaps, false
}
