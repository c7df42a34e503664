package bloom

import (
	"math"
	"sync/atomic"
	"time"
)

// window is the t of "requests in the last t seconds": a look-up counts in full
// when it happens, and 1/e of that a window later.
const window = time.Minute

// tally is what the samples of a page have come to, faded with time. It is what
// the usefulness of a page is made of:
//
//	requests in the last t seconds x probability of a "no" = misses
//
// misses counts the look-ups for keys that the table does not have, whether the
// page was in memory and said so or the table had to be searched. So a page
// that is not in memory learns as fast as one that is, and a "maybe" for lack
// of the page says nothing by itself. requests is there for pages to come: see
// inherit.
type tally struct {
	requests float32
	misses   float32
}

// fade is the factor by which tallies fade in some time.
func fade(elapsed time.Duration) float32 {
	return float32(math.Exp(-float64(max(0, elapsed)) / float64(window)))
}

// asked tells whether there are samples to take.
func (f *Filter) asked() bool {
	for i := range f.samples {
		if s := &f.samples[i]; s.no.Load() > 0 || s.maybe.Load() > 0 {
			return true
		}
	}
	return false
}

// take moves the samples that were counted since the last time to the tallies.
func (f *Filter) take() {
	for i := range f.samples {
		s, t := &f.samples[i], &f.tallies[i]
		no, maybe, missed := swapZero(&s.no), swapZero(&s.maybe), swapZero(&s.missed)
		t.requests += no + maybe
		t.misses += no + missed
	}
}

// swapZero returns what was counted and sets it to 0, mostly without a write.
func swapZero(c *atomic.Uint32) float32 {
	if c.Load() == 0 {
		return 0
	}
	return float32(c.Swap(0))
}

// fade lets all tallies fade. What is left of a single look-up after twenty
// windows is nothing.
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

// usefulness appends, for each page of a filter, the estimate of what its
// misses are in truth. share tells which share of the table's keys a page has.
//
// Few look-ups fall on a page, so that its own number is mostly chance: where
// keys are asked for in no order, one page looks twice as useful as the next
// and is not. How far the numbers can be trusted shows in their spread around
// what the pages would have if the misses of the table fell on its keys
// evenly. Chance alone (Poisson) makes the sum of the squared distances as large
// as the sum of the misses; what is beyond comes from the pages being different.
// So each number is drawn towards the even one by that ratio (the estimator of
// James and Stein): pages of a table whose keys are hashed score alike, hot ones
// keep what they have.
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

// share returns which share of the keys page i has.
func (f *Filter) share(i int) float64 { return float64(f.index.entries[i].keys) / float64(f.keys) }

// perByte returns what a miss of page i is worth for each byte of the page: the
// probability that it says "no" if it is in memory.
func (f *Filter) perByte(i int) float64 {
	e := f.index.entries[i]
	return (1 - falsePositives(float64(e.keys), 8*float64(e.bytes), float64(f.hashes))) / float64(e.bytes)
}

// falsePositives is the rate of false positives of a page with n keys in m bits
// and k hash functions.
func falsePositives(n, m, k float64) float64 { return math.Pow(1-math.Exp(-k*n/m), k) }

// inherit returns tallies for the pages of a new filter. Its table came from the
// others, and replaces them: a look-up that asked each of these now asks it
// once, and hits if one of these did. Per page, then,
//
//	requests = the largest of theirs    hits = the sum of theirs
//
// which is right where their keys lie in the same range (who asked the oldest had
// asked all) and where they lie in different ones (each was asked alone).
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

// expect returns tallies for the pages of a filter whose table replaces none: it
// takes the place of the one that was the newest, and so will be asked as often
// as that. It may have another range of keys: the requests are divided evenly. Of
// the answers nothing is known: half of them are taken to be "no".
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

// spread divides the tallies of pages among the pages of another filter, in
// proportion to how much of the other's keys they have in common. All pages of
// a filter have about as many keys, so that is measured in pages.
func spread(to, from *index, tallies []tally) []tally {
	result := make([]tally, len(to.entries))
	if len(result) == 0 || len(tallies) == 0 {
		return result
	}
	ends := make([]float64, len(tallies)+1) // page i lies from ends[i] to ends[i+1]
	for i := 1; i < len(tallies); i++ {
		ends[i] = to.rank(from.separator(i))
	}
	n := len(tallies)
	ends[n] = float64(len(result))
	if n > 2 {
		// Where the first begins and the last ends is not known. They have as
		// many keys as their neighbours, and so are taken to be as wide.
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
	if end == start { // within a page
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
