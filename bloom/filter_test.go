package bloom

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	bloomv3 "github.com/bits-and-blooms/bloom/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"docstore/internal/invariants"
	"docstore/internal/testseed"
)

func numbered(format string, n int) [][]byte {
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, format, i)
	}
	return sorted(keys)
}

// keySets returns key sets of many shapes, with sizes around the 62 keys of a page of
// 64 bytes.
func keySets(random *rand.Rand) map[string][][]byte {
	perPage := NewBuilder(&Options{PageBytes: 64}).perPage
	long := strings.Repeat("common beginning ", 100)
	sets := map[string][][]byte{
		"none":              {},
		"the empty key":     {{}},
		"one":               {[]byte("key")},
		"empty and zeros":   sorted([][]byte{{}, {0}, {0, 0}, make([]byte, 8), make([]byte, 9), make([]byte, 20)}),
		"all zeros":         nil,
		"shared beginnings": numbered(long+"%06d", 1000),
		"eight in common":   numbered("prefix--%d", 3000),
		"largest":           {make([]byte, MaxKeyBytes), append(make([]byte, MaxKeyBytes-1), 1)},
	}
	for n := range 500 {
		sets["all zeros"] = append(sets["all zeros"], make([]byte, n))
	}
	for _, pages := range []int{1, 2, 3} {
		for _, more := range []int{-1, 0, 1} {
			n := pages*perPage + more
			sets[fmt.Sprint("keys=", n)] = randomKeys(random, n)
		}
	}
	for n := 1; n < 100; n += 7 {
		sets[fmt.Sprint("keys=", n)] = randomKeys(random, n)
	}
	return sets
}

// TestPagesAreThoseOfTheLibrary: a filter never answers "no" for an added key, and each
// page has the bits that bloom/v3 sets for its keys.
func TestPagesAreThoseOfTheLibrary(t *testing.T) {
	for name, keys := range keySets(testseed.Rand(t)) {
		t.Run(name, func(t *testing.T) {
			for _, opts := range []*Options{nil, {PageBytes: 64}, {PageBytes: 128, FalsePositiveRate: 0.2}} {
				f := load(t, build(opts, keys))
				for _, key := range keys {
					require.True(t, mayContain(f, key), "false negative: %q", key)
				}
				perPage := NewBuilder(opts).perPage
				require.Equal(t, (len(keys)+perPage-1)/perPage, len(f.pages))
				for i := range f.pages {
					p := f.pages[i].Load()
					require.NotNil(t, p)
					oracle := bloomv3.New(uint(64*len(p.words)), uint(f.hashes))
					for _, key := range keys[i*perPage : min((i+1)*perPage, len(keys))] {
						require.Equal(t, i, f.index.find(key), "page of key %q", key)
						oracle.Add(key)
					}
					require.Equal(t, oracle.BitSet().Words(), p.words, "page %d", i)
				}
				s := f.Stats()
				assert.EqualValues(t, len(keys), s.Keys)
				assert.EqualValues(t, len(keys), s.Probes)
				assert.Zero(t, s.No)
				assert.Zero(t, s.Absent)
				assert.Equal(t, s.Pages, s.ResidentPages)
				assert.Equal(t, s.PageBytes, s.ResidentBytes)
			}
		})
	}
}

// TestRandomKeys compares random key sets with a map, probing keys near the added ones.
func TestRandomKeys(t *testing.T) {
	random := testseed.Rand(t)
	for range 30 {
		present := map[string]bool{}
		alphabet := 1 + random.IntN(4)
		word := func() string {
			b := make([]byte, random.IntN(14))
			for i := range b {
				b[i] = byte(random.IntN(alphabet) * 85)
			}
			return string(b)
		}
		for range random.IntN(3000) {
			present[word()] = true
		}
		var keys [][]byte
		for key := range present {
			keys = append(keys, []byte(key))
		}
		f := load(t, build(&Options{PageBytes: 64 << random.IntN(4)}, sorted(keys)))
		for key := range present {
			require.True(t, mayContain(f, []byte(key)), "false negative: %q", key)
		}
		for range 1000 {
			key := word()
			require.True(t, mayContain(f, []byte(key)) || !present[key], "false negative: %q", key)
		}
	}
}

// TestFalsePositiveRate: full pages have the configured rate, within measurement error;
// the folded last page has at most that rate.
func TestFalsePositiveRate(t *testing.T) {
	random := testseed.Rand(t)
	const probes = 100_000
	for _, rate := range []float64{0.5, 0.1, 0.02, 0.001} {
		for _, pageBytes := range []int{512, 4096} {
			opts := &Options{FalsePositiveRate: rate, PageBytes: pageBytes}
			perPage := NewBuilder(opts).perPage
			for _, n := range []int{perPage / 3, 3 * perPage} {
				f := load(t, build(opts, randomKeys(random, n)))
				positive := 0
				key := make([]byte, 8)
				for range probes {
					binary.BigEndian.PutUint64(key, random.Uint64())
					if mayContain(f, key) {
						positive++
					}
				}
				got := float64(positive) / probes
				name := fmt.Sprintf("rate=%v page=%d keys=%d", rate, pageBytes, n)
				assert.Less(t, got, 1.1*rate+0.0003, name)
				if n >= perPage {
					assert.Greater(t, got, 0.8*rate-0.0003, name)
				}
				s := f.Stats()
				assert.EqualValues(t, probes, s.Probes)
				assert.EqualValues(t, probes-positive, s.No)
			}
		}
	}
}

// TestBitsPerKey: with the default options a key takes 8.15 bits in full pages.
func TestBitsPerKey(t *testing.T) {
	b := NewBuilder(nil)
	assert.Equal(t, 6, b.hashes)
	assert.Equal(t, 4019, b.perPage)
}

func TestPageNotInMemorySaysMaybe(t *testing.T) {
	random := testseed.Rand(t)
	f := open(t, build(nil, randomKeys(random, 5000)))
	for _, key := range randomKeys(random, 1000) {
		require.True(t, mayContain(f, key))
	}
	s := f.Stats()
	assert.EqualValues(t, 1000, s.Probes)
	assert.EqualValues(t, 1000, s.Absent)
	assert.Zero(t, s.No)
	assert.Zero(t, s.ResidentPages)
}

func TestFilterOfNoKeysSaysNo(t *testing.T) {
	data := build(nil, nil)
	require.Len(t, data, trailerBytes)
	f := open(t, data)
	assert.False(t, mayContain(f, nil))
	assert.False(t, mayContain(f, []byte("key")))
	assert.EqualValues(t, 2, f.Stats().No)
}

func TestAddPanicsOnWrongKeys(t *testing.T) {
	b := NewBuilder(nil)
	b.Add([]byte("b"))
	if invariants.Enabled {
		assert.Panics(t, func() { b.Add([]byte("a")) })
		assert.Panics(t, func() { b.Add([]byte("b")) })
		assert.Panics(t, func() { b.Add(nil) })
	}
	assert.Panics(t, func() { b.Add(bytes.Repeat([]byte("c"), MaxKeyBytes+1)) })
}

func TestBuilderIsReusable(t *testing.T) {
	random := testseed.Rand(t)
	b := NewBuilder(&Options{PageBytes: 64})
	for range 5 {
		keys := randomKeys(random, random.IntN(300))
		for _, key := range keys {
			b.Add(key)
		}
		got := b.Finish([]byte("before"))
		require.Equal(t, "before", string(got[:6]), "Finish appends")
		require.Equal(t, build(&Options{PageBytes: 64}, keys), got[6:])
	}
}

// TestFlush: flushing while keys are added gives the same filter.
func TestFlush(t *testing.T) {
	random := testseed.Rand(t)
	b := NewBuilder(&Options{PageBytes: 64})
	for range 20 {
		keys := randomKeys(random, random.IntN(500))
		var got []byte
		for _, key := range keys {
			b.Add(key)
			if random.IntN(50) == 0 {
				got = b.Flush(got)
				require.Empty(t, b.pages)
			}
		}
		require.Equal(t, build(&Options{PageBytes: 64}, keys), b.Finish(got))
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		opts *Options
		want []string // that the error says, none if there is no error
	}{
		{nil, nil},
		{&Options{}, nil},
		{&Options{FalsePositiveRate: MinFalsePositiveRate, PageBytes: MinPageBytes}, nil},
		{&Options{FalsePositiveRate: MaxFalsePositiveRate, PageBytes: MaxPageBytes}, nil},
		{&Options{FalsePositiveRate: -0.1}, []string{"-0.1"}},
		{&Options{FalsePositiveRate: MaxFalsePositiveRate + 0.001}, []string{"0.501"}},
		{&Options{FalsePositiveRate: MinFalsePositiveRate / 2}, []string{"5e-05"}},
		{&Options{PageBytes: MinPageBytes / 2}, []string{"page of 32"}},
		{&Options{PageBytes: MaxPageBytes * 2}, []string{"page of 2097152"}},
		{&Options{PageBytes: 4095}, []string{"page of 4095"}},
		{&Options{FalsePositiveRate: 2, PageBytes: -1}, []string{"rate of 2", "page of -1"}},
	} {
		err := c.opts.Validate()
		if c.want == nil {
			assert.NoError(t, err)
			assert.NotPanics(t, func() { NewBuilder(c.opts) })
			continue
		}
		require.Error(t, err)
		for _, want := range c.want {
			assert.Contains(t, err.Error(), want)
		}
		assert.Panics(t, func() { NewBuilder(c.opts) })
	}
	assert.LessOrEqual(t, hashes(MinFalsePositiveRate), maxHashes)
	assert.GreaterOrEqual(t, hashes(MaxFalsePositiveRate), 1)
}

func TestLookupAllocatesNothing(t *testing.T) {
	random := testseed.Rand(t)
	f := load(t, build(nil, randomKeys(random, 10_000)))
	i := byte(0)
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		var key [24]byte // stays on the stack
		key[0], key[20] = i, i
		i++
		h := HashKey(key[:])
		if f.MayContain(h, key[:]) {
			f.Missed(key[:])
		}
	}))
}
