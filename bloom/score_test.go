package bloom

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// lookUp probes filters, newest first, as a store does, and returns the number of
// tables searched. in is the filter of the table that has the key, or nil.
func lookUp(key []byte, in *Filter, newestFirst ...*Filter) (probes int) {
	h := HashKey(key)
	for _, f := range newestFirst {
		if !f.MayContain(h, key) {
			continue
		}
		probes++
		if f == in {
			break
		}
		f.Missed(key)
	}
	return probes
}

// TestFigure13 is the example of the article's figure 13. Of the jobs 12.5 % are in
// memory, 12.5 % in the newest index on disk, 25 % in the next and 50 % in the oldest,
// and one of them has every key. So the probabilities that an index has a job not found
// before are 14.3 %, 33 % and 100 %; the rest is the probability of a "no".
func TestFigure13(t *testing.T) {
	const eighth = 500
	random := testseed.Rand(t)
	keys := randomKeys(random, 8*eighth)
	random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	cut := func(eighths int) (part [][]byte) {
		part, keys = keys[:eighths*eighth], keys[eighths*eighth:]
		return part
	}
	all := keys
	cut(1) // in memory
	parts := [][][]byte{cut(1), cut(2), cut(4)}
	opts := &Options{PageBytes: 256}
	var filters []*Filter
	holder := map[string]*Filter{}
	for _, part := range parts {
		f := open(t, build(opts, sorted(append([][]byte(nil), part...))))
		filters = append(filters, f)
		for _, key := range part {
			holder[string(key)] = f
		}
	}
	var indexBytes int64
	for _, f := range filters {
		indexBytes += f.Stats().IndexBytes
	}
	m := NewManager(indexBytes + filters[0].Stats().PageBytes + filters[1].Stats().PageBytes)
	require.NoError(t, m.Update(filters[2]), "the oldest filter, which is useless here, has the memory")
	require.NoError(t, m.Update(filters...))
	for _, key := range all { // each once
		if in := holder[string(key)]; in != nil {
			lookUp(key, in, filters...)
		}
		for _, f := range filters {
			f.take() // often enough that no lookup is sampled
		}
	}

	for i, want := range []struct{ requests, hits float64 }{{7, 1}, {6, 2}, {4, 4}} {
		s := filters[i].Stats()
		hits := s.Probes - s.No - s.Missed
		assert.EqualValues(t, want.requests*eighth, s.Probes)
		assert.InDelta(t, []float64{0.143, 0.333, 1}[i], float64(hits)/float64(s.Probes), 0.001)
	}
	_, err := m.Tick(time.Unix(1, 0))
	require.NoError(t, err)
	useful := func(f *Filter) (sum float64) {
		for _, x := range usefulness(nil, f.tallies, f.share) {
			sum += x
		}
		return sum
	}
	assert.InDelta(t, 6*eighth, useful(filters[0]), 1e-6, "7 x 85.7 %")
	assert.InDelta(t, 4*eighth, useful(filters[1]), 1e-6, "6 x 66.7 %")
	assert.Zero(t, useful(filters[2]), "we know the key exists")
	assert.Equal(t, filters[0].Stats().Pages, filters[0].Stats().ResidentPages)
	assert.Equal(t, filters[1].Stats().Pages, filters[1].Stats().ResidentPages)
	assert.Zero(t, filters[2].Stats().ResidentPages)
}

// TestScoreLearns: the oldest table's filter is useless for existing keys and useful
// for missing ones. The ranking detects which keys are looked up, also for pages
// outside memory.
func TestScoreLearns(t *testing.T) {
	random := testseed.Rand(t)
	opts := &Options{PageBytes: 128}
	keys := [2][][]byte{randomKeys(random, 1000), randomKeys(random, 1000)}
	newest, oldest := open(t, build(opts, keys[0])), open(t, build(opts, keys[1]))
	m := NewManager(newest.Stats().IndexBytes + oldest.Stats().IndexBytes + newest.Stats().PageBytes + 127)
	m.Track(newest, oldest)
	clock := time.Unix(0, 0)
	second := func() {
		clock = clock.Add(time.Second)
		_, err := m.Tick(clock)
		require.NoError(t, err)
	}
	second()
	for range 10 {
		for range 500 {
			lookUp(keys[1][random.IntN(1000)], oldest, newest, oldest)
		}
		second()
	}
	assert.Equal(t, newest.Stats().Pages, newest.Stats().ResidentPages, "keys that exist, in the oldest table")
	assert.Zero(t, oldest.Stats().ResidentPages)
	for _, x := range usefulness(nil, oldest.tallies, oldest.share) {
		assert.Zero(t, x, "a maybe for lack of the page does not count as useful")
	}

	for range 300 {
		for range 500 {
			lookUp(randomKeys(random, 1)[0], nil, oldest) // outside the newest table's range, say
		}
		second()
	}
	assert.Equal(t, oldest.Stats().Pages, oldest.Stats().ResidentPages, "keys that do not exist")
	assert.Zero(t, newest.Stats().ResidentPages)
}

// TestUsefulness: pages of equal worth score alike despite chance; real differences
// remain.
func TestUsefulness(t *testing.T) {
	even := func(int) float64 { return 1.0 / 100 }
	random := testseed.Rand(t)
	spreadOf := func(x []float64) float64 {
		low, high := math.Inf(1), 0.0
		for _, v := range x {
			low, high = min(low, v), max(high, v)
		}
		return high - low
	}
	tallies := make([]tally, 100)
	for range 1000 { // 10 per page, standard deviation 3
		tallies[random.IntN(100)].misses++
	}
	x := usefulness(nil, tallies, even)
	assert.Less(t, spreadOf(x), 0.7*spreadOf(counts(tallies)))
	for i := range tallies {
		tallies[i] = tally{}
	}
	for range 1000 {
		tallies[random.IntN(10)].misses++ // and 100 on each of these
	}
	x = usefulness(nil, tallies, even)
	for i := range x {
		if i < 10 {
			assert.InDelta(t, tallies[i].misses, x[i], 5)
		} else {
			assert.Less(t, x[i], 2.0)
		}
	}
	assert.Equal(t, []float64{0, 0}, usefulness(nil, make([]tally, 2), func(int) float64 { return 0.5 }))
	assert.Empty(t, usefulness(nil, nil, nil))
}

func counts(tallies []tally) (x []float64) {
	for _, t := range tallies {
		x = append(x, float64(t.misses))
	}
	return x
}

func TestTalliesFade(t *testing.T) {
	f := open(t, build(nil, numbered("%05d", 5000)))
	m := NewManager(1 << 20)
	m.Track(f)
	tick := func(seconds int64) tally {
		_, err := m.Tick(time.Unix(1000+seconds, 0))
		require.NoError(t, err)
		return f.tallies[0]
	}
	tick(0)
	for range 50 {
		lookUp([]byte("00001"), f, f)
		lookUp([]byte("00001x"), nil, f)
	}
	got := tick(10)
	assert.EqualValues(t, 100, got.requests)
	assert.EqualValues(t, 50, got.misses)
	assert.Equal(t, got, tick(5000), "no lookups: no decay")
	lookUp([]byte("04999"), f, f) // another page
	faded := tick(5060)
	assert.InDelta(t, 100/math.E, float64(faded.requests), 0.1)
	assert.InDelta(t, 50/math.E, float64(faded.misses), 0.1)
	lookUp([]byte("04999"), f, f)
	assert.Equal(t, faded, tick(5000), "the clock was set back")
	lookUp([]byte("04999"), f, f)
	assert.Zero(t, tick(50_000))
}

// TestSampling: the sampled count of a page with many lookups is about right.
func TestSampling(t *testing.T) {
	f := load(t, build(nil, numbered("%03d", 100)))
	random := testseed.Rand(t)
	key := make([]byte, 8)
	const n = 100_000
	for range n {
		for i := range key {
			key[i] = byte(random.Uint32())
		}
		lookUp(key, nil, f)
	}
	f.take()
	assert.InEpsilon(t, n, float64(f.tallies[0].requests), 0.02)
	assert.InEpsilon(t, n, float64(f.tallies[0].misses), 0.02)
}

// TestInherit covers tables with equal key ranges (a lookup of the oldest had passed
// all), with disjoint ranges, and both.
func TestInherit(t *testing.T) {
	opts := &Options{PageBytes: 64} // 62 keys
	all := numbered("%04d", 620)
	low, high := all[:310], all[310:]
	filter := func(keys [][]byte, each tally) *Filter {
		f := open(t, build(opts, keys))
		for i := range f.tallies {
			f.tallies[i] = each
		}
		return f
	}
	sum := func(tallies []tally) (s tally) {
		for _, x := range tallies {
			s.requests += x.requests
			s.misses += x.misses
		}
		return s
	}
	out := &filter(all, tally{}).index

	got := inherit(out, []*Filter{filter(all, tally{100, 90}), filter(all, tally{90, 60}), filter(all, tally{60, 0})})
	for _, x := range got {
		assert.Equal(t, tally{100, 0}, x, "the oldest had all remaining keys")
	}
	got = inherit(out, []*Filter{filter(all, tally{100, 90}), filter(all, tally{90, 60})})
	for _, x := range got {
		assert.Equal(t, tally{100, 60}, x)
	}

	got = inherit(out, []*Filter{filter(high, tally{100, 90}), filter(low, tally{10, 5})})
	s := sum(got)
	assert.InDelta(t, 5*100+5*10, s.requests, 1)
	assert.InDelta(t, 5*90+5*5, s.misses, 1)
	assert.InDelta(t, 90, got[8].misses, 10)
	assert.InDelta(t, 5, got[1].misses, 1)

	got = inherit(out, []*Filter{filter(all[:50], tally{100, 50})})
	assert.InDelta(t, 100, sum(got).requests, 0.01, "one page is divided among all pages that it may cover")
	assert.Empty(t, inherit(&open(t, build(nil, nil)).index, []*Filter{filter(all, tally{1, 1})}))
	assert.Equal(t, make([]tally, 10), inherit(out, []*Filter{open(t, build(nil, nil))}))
	assert.Equal(t, make([]tally, 10), inherit(out, nil))
}

// TestSpreadLosesNothing: for any pages the distributed tallies have the same sum.
func TestSpreadLosesNothing(t *testing.T) {
	random := testseed.Rand(t)
	for range 200 {
		from := open(t, build(&Options{PageBytes: 64}, randomKeys(random, 1+random.IntN(1000))))
		to := open(t, build(&Options{PageBytes: 64}, randomKeys(random, 1+random.IntN(1000))))
		var want, got float64
		for i := range from.tallies {
			from.tallies[i] = tally{requests: float32(random.IntN(100)), misses: 1}
			want += float64(from.tallies[i].requests)
		}
		for _, x := range spread(&to.index, &from.index, from.tallies) {
			require.GreaterOrEqual(t, x.requests, float32(0))
			got += float64(x.requests)
		}
		require.InDelta(t, want, got, 0.01+want/1e5)
	}
}
