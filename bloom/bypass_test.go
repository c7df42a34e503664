package bloom

import (
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// TestFilterIsBypassedAfterCorrectMaybes looks up existing keys until "maybe" is
// bypassed, then a missing key, which causes one unnecessary search.
func TestFilterIsBypassedAfterCorrectMaybes(t *testing.T) {
	keys := randomKeys(testseed.Rand(t), 1000)
	f := load(t, build(nil, keys))
	missing := []byte("none")
	for mayContain(f, missing) {
		missing = append(missing, '.')
	}
	ask := func(key []byte) (Probe, bool) {
		p := f.probe(&f.counters[0], key)
		return p, p.MayContain(HashKey(key))
	}
	for range 3 {
		before := f.Stats()
		for i := range 2 * bypassAfter {
			_, maybe := ask(keys[i%len(keys)])
			require.True(t, maybe)
		}
		after := f.Stats()
		require.EqualValues(t, bypassAfter, after.Bypassed-before.Bypassed)
		require.EqualValues(t, 2*bypassAfter, after.Probes-before.Probes)

		p, maybe := ask(missing)
		require.True(t, maybe, "bypassed")
		require.False(t, mayContain(f, missing), "the bits say no")
		p.Missed(missing)
		for range 3 {
			_, maybe = ask(missing)
			require.False(t, maybe)
		}
	}
	require.EqualValues(t, 3, f.Stats().Missed)
}

// TestBypassedLookupsAreCounted: the requests of a page, which rank it, include those that
// bypass the filter.
func TestBypassedLookupsAreCounted(t *testing.T) {
	keys := randomKeys(testseed.Rand(t), 10_000)
	f := load(t, build(nil, keys))
	requests := func() (sum int) {
		for i := range f.samples {
			sum += int(f.samples[i].maybe.Load())
		}
		return sum
	}
	ask := func(i int) {
		p := f.probe(&f.counters[0], keys[i%len(keys)])
		require.True(t, p.MayContain(HashKey(keys[i%len(keys)])))
	}
	for i := range bypassAfter {
		ask(i)
	}
	before := requests()
	for i := range 10 * sampleInterval {
		ask(i)
	}
	require.EqualValues(t, 10*sampleInterval, f.Stats().Bypassed)
	require.Equal(t, before+10*sampleInterval, requests())
}

// TestNoResetsTheBypass looks up a missing key periodically: no answer is ever
// bypassed.
func TestNoResetsTheBypass(t *testing.T) {
	keys := randomKeys(testseed.Rand(t), 1000)
	f := load(t, build(nil, keys))
	missing := []byte("none")
	for mayContain(f, missing) {
		missing = append(missing, '.')
	}
	ask := func(key []byte) bool {
		p := f.probe(&f.counters[0], key)
		return p.MayContain(HashKey(key))
	}
	for range 3 {
		for i := range bypassAfter - 1 {
			require.True(t, ask(keys[i%len(keys)]))
		}
		require.False(t, ask(missing))
	}
	require.Zero(t, f.Stats().Bypassed)
}
