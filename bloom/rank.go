package bloom

import (
	"cmp"
	"slices"
)

// candidate is a page that may be in memory, as the ranking sees it.
type candidate struct {
	filter   *Filter
	page     int
	bytes    int64
	worth    float64 // usefulness a byte
	resident bool
}

// swap is a step towards the best pages: one comes in, and others go for it.
type swap struct {
	in  *candidate // nil where pages only go
	out []*candidate
}

// A page is worth the reading only if it is better by this than those that go
// for it: by a factor, and by a look-up spared within the window. Otherwise pages
// of about the same usefulness would come and go with every change of fortune.
const (
	swapFactor = 1.15
	swapGain   = 1
)

func worthwhile(in, out *candidate) bool {
	return in.worth > swapFactor*out.worth+swapGain/float64(in.bytes)
}

// choose decides which pages come into memory and which go, in order, such that
// after each step those in memory have at most the given room. The pages worth
// most come first, and those worth least go first; among equals, the earlier
// in the list are preferred. Free room is filled with whatever there is. No more
// than limit bytes come in; more tells that otherwise there would have been
// others.
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
