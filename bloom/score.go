package bloom

import (
	"math"
	"sync/atomic"
	"time"
)

// window is the time constant of the decay: a lookup counts 1 when it happens and 1/e a
// window later.
const window = time.Minute

// tally accumulates the samples of a page with exponential decay. The usefulness of a
// page is
//
//	requests in the last t seconds x probability of a "no" = misses
//
// misses counts the lookups of keys that the table does not have, whether the page
// answered "no" or the table was searched. So a page outside memory is ranked as
// accurately as one in memory, and a "maybe" for lack of the page has no influence.
// requests is used by inherit.
type tally struct {
	requests float32
	misses   float32
}

// fade returns the decay factor for an elapsed time.
func fade(elapsed time.Duration) float32 {
	return float32(math.Exp(-float64(max(0, elapsed)) / float64(window)))
}

// asked reports whether there are new samples.
func (f *Filter) asked() bool {
	for i := range f.samples {
		if s := &f.samples[i]; s.no.Load() > 0 || s.maybe.Load() > 0 {
			return true
		}
	}
	return false
}

// take adds the samples since the last call to the tallies.
func (f *Filter) take() {
	for i := range f.samples {
		s, t := &f.samples[i], &f.tallies[i]
		no, maybe, missed := swapZero(&s.no), swapZero(&s.maybe), swapZero(&s.missed)
		t.requests += no + maybe
		t.misses += no + missed
	}
}

// swapZero returns the count and resets it to 0, without a write if it is 0.
func swapZero(c *atomic.Uint32) float32 {
	if c.Load() == 0 {
		return 0
	}
	return float32(c.Swap(0))
}

// fade decays all tallies. A single lookup is rounded to zero after twenty windows.
func (f *Filter) fade(by float32) {
	const nothing = 1e-9
	for i := range f.tallies {
		t := &f.tallies[i]
		t.requests *= by
		if t.misses *= by; t.requests < nothing && t.misses < nothing {
			*t = tally{}
		}
	}
}

// usefulness appends the estimated true misses of each page of a filter. share returns
// the fraction of the table's keys that a page has.
//
// A page has few lookups, so its own count is mostly chance: with random keys one page
// can look twice as useful as the next and not be. The variance shows how far the
// counts can be trusted. If the misses were spread evenly over the keys, chance alone
// (Poisson) would make the sum of squared deviations equal to the sum of the misses;
// the excess comes from real differences between pages. Each count is shrunk towards
// the even one by that ratio (the James-Stein estimator): pages of a table with hashed
// keys score alike, and hot pages keep their counts.
func usefulness(dst []float64, tallies []tally, share func(page int) float64) []float64 {
	var sum, squares float64
	for i := range tallies {
		sum += float64(tallies[i].misses)
	}
	for i := range tallies {
		distance := float64(tallies[i].misses) - sum*share(i)
		squares += distance * distance
	}
	trust := 0.0
	if squares > sum {
		trust = 1 - sum/squares
	}
	for i := range tallies {
		even := sum * share(i)
		dst = append(dst, even+trust*(float64(tallies[i].misses)-even))
	}
	return dst
}

// share returns the fraction of the table's keys in page i.
func (f *Filter) share(i int) float64 { return float64(f.index.entries[i].keys) / float64(f.keys) }

// perByte returns the value of a miss of page i per byte of the page: the probability
// that the page answers "no", divided by its size.
func (f *Filter) perByte(i int) float64 {
	e := f.index.entries[i]
	return (1 - falsePositives(float64(e.keys), 8*float64(e.bytes), float64(f.hashes))) / float64(e.bytes)
}

// falsePositives returns the false positive rate of n keys in m bits with k hashes.
func falsePositives(n, m, k float64) float64 { return math.Pow(1-math.Exp(-k*n/m), k) }

// inherit returns tallies for the pages of a new filter whose table replaces those of
// from: a lookup that searched each of them now searches the new table once, and hits
// if any of them did. So per page
//
//	requests = max of the replaced    hits = sum over the replaced
//
// which is exact for tables with equal key ranges (a lookup that reached the oldest had
// passed all others) and for tables with disjoint ranges.
func inherit(to *index, from []*Filter) []tally {
	result := make([]tally, len(to.entries))
	hits := make([]float32, len(result))
	most := make([]float32, len(result)) // misses
	for _, f := range from {
		for i, t := range spread(to, &f.index, f.tallies) {
			result[i].requests = max(result[i].requests, t.requests)
			hits[i] += max(0, t.requests-t.misses)
			most[i] = max(most[i], t.misses)
		}
	}
	for i := range result {
		result[i].misses = min(most[i], max(0, result[i].requests-hits[i]))
	}
	return result
}

// expect returns tallies for a filter whose table replaces none. It becomes the newest,
// so it is expected to get as many requests as the previous newest, evenly spread
// because its key range may differ. Half of the answers are assumed to be "no".
func expect(f, older *Filter) []tally {
	var requests float64
	for _, t := range older.tallies {
		requests += float64(t.requests)
	}
	result := make([]tally, len(f.index.entries))
	for i := range result {
		even := float32(requests * f.share(i))
		result[i] = tally{requests: even, misses: even / 2}
	}
	return result
}

// spread distributes the tallies of pages over the pages of another filter, in
// proportion to the overlap of their key ranges. All pages of a filter have about as
// many keys, so overlap is measured in pages.
func spread(to, from *index, tallies []tally) []tally {
	result := make([]tally, len(to.entries))
	if len(result) == 0 || len(tallies) == 0 {
		return result
	}
	ends := make([]float64, len(tallies)+1) // page i spans ends[i] to ends[i+1]
	for i := 1; i < len(tallies); i++ {
		ends[i] = to.rank(from.separator(i))
	}
	n := len(tallies)
	ends[n] = float64(len(result))
	if n > 2 {
		// The start of the first page and the end of the last are unknown. Assume that
		// they are as wide as their neighbours.
		ends[0] = max(0, 2*ends[1]-ends[2])
		ends[n] = min(ends[n], 2*ends[n-1]-ends[n-2])
	}
	for i, t := range tallies {
		divide(result, t, ends[i], ends[i+1])
	}
	return result
}

// divide adds a tally to the pages between two ranks.
func divide(pages []tally, t tally, start, end float64) {
	if end == start { // inside a page
		i := min(int(start), len(pages)-1)
		pages[i].requests += t.requests
		pages[i].misses += t.misses
		return
	}
	for i := int(start); i < len(pages) && float64(i) < end; i++ {
		part := float32((min(end, float64(i+1)) - max(start, float64(i))) / (end - start))
		pages[i].requests += part * t.requests
		pages[i].misses += part * t.misses
	}
}
