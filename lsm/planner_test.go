package lsm

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
)

// sum is the size of a merged table if all keys differ.
func sum(sizes []float64, _ bool) (total float64) {
	for _, size := range sizes {
		total += size
	}
	return total
}

// overlapping returns the size of a merged table whose keys are drawn from few.
func overlapping(keys float64) func(sizes []float64, oldest bool) float64 {
	return func(sizes []float64, _ bool) float64 {
		missing := 1.0
		for _, size := range sizes {
			missing *= max(0, 1-size/keys)
		}
		return keys * (1 - missing)
	}
}

// simulate flushes tables of the given sizes, in units, and merges them by the rule.
// Like the article, it counts the flush that begins a merge as part of it. It returns
// the amount written and the largest number of tables at rest.
func simulate(rule MergeRule, merge func([]float64, bool) float64, sizes []float64) (written float64, tables []float64, most int) {
	for _, size := range sizes {
		tables = append([]float64{size}, tables...)
		written += size
		for {
			units := make([]uint64, len(tables))
			for i, t := range tables {
				units[i] = tableUnits(uint64(t*1000), 1000)
			}
			begin, end := rule.plan(units, noLimit)
			if begin == end {
				break
			}
			merged := merge(tables[begin:end], end == len(tables))
			written += merged
			if begin == 0 {
				written -= size // came from memory
			}
			rest := append([]float64{merged}, tables[end:]...)
			tables = append(tables[:begin:begin], rest...)
		}
		most = max(most, len(tables))
	}
	return written, tables, most
}

func repeat(size float64, n int) []float64 {
	sizes := make([]float64, n)
	for i := range sizes {
		sizes[i] = size
	}
	return sizes
}

// TestPlannerMatchesArticle compares with the article's figures for three rules, for
// 100,000 jobs per flush.
func TestPlannerMatchesArticle(t *testing.T) {
	const jobs = 100_000
	for _, c := range []struct {
		rule    MergeRule
		flushes int
		written int // jobs
		tables  []float64
	}{
		{SizeTiered, 4, 800_000, []float64{4}},
		{SizeTiered, 100, 37_600_000, []float64{4, 32, 64}},
		{MergeAlways, 4, 1_000_000, []float64{4}},
		{MergeAlways, 100, 505_000_000, []float64{100}},
		{MergeNever, 4, 400_000, repeat(1, 4)},
		{MergeNever, 100, 10_000_000, repeat(1, 100)},
	} {
		written, tables, _ := simulate(c.rule, sum, repeat(1, c.flushes))
		require.EqualValues(t, c.written, written*jobs)
		require.Equal(t, c.tables, tables)
	}
}

func TestPlannerChoices(t *testing.T) {
	for name, c := range map[string]struct {
		units      []uint64
		limit      uint64
		begin, end int
	}{
		"nothing":                             {nil, noLimit, 0, 0},
		"one":                                 {[]uint64{1}, noLimit, 0, 0},
		"rising":                              {[]uint64{1, 2, 3, 9}, noLimit, 0, 0},
		"equal":                               {[]uint64{1, 1}, noLimit, 0, 2},
		"the sum takes the next":              {[]uint64{1, 1, 2, 4, 9}, noLimit, 0, 4},
		"larger takes smaller":                {[]uint64{5, 1}, noLimit, 0, 2},
		"flushed while a merge ran":           {[]uint64{1, 1, 1, 1, 1, 64}, noLimit, 1, 5},
		"and its result":                      {[]uint64{1, 1, 4, 64}, noLimit, 0, 2},
		"the newest is small, others are due": {[]uint64{1, 2, 2, 9}, noLimit, 1, 3},
		"during a larger merge":               {[]uint64{1, 1, 2, 4}, 9, 0, 4},
		"as large as the one under way":       {[]uint64{1, 1, 2, 4}, 8, 0, 3},
		"nothing is small enough":             {[]uint64{1, 1}, 2, 0, 0},
		"one that is too large before others": {[]uint64{8, 1, 1}, 8, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			begin, end := planMerge(c.units, c.limit)
			require.Equal(t, []int{c.begin, c.end}, []int{begin, end})
		})
	}
}

func TestPlannerBounds(t *testing.T) {
	r := testseed.Rand(t)
	jittered := func(n int, jitter float64) []float64 {
		sizes := make([]float64, n)
		for i := range sizes {
			sizes[i] = 1 + jitter*(2*r.Float64()-1)
		}
		return sizes
	}
	falling := make([]float64, 1000)
	for i := range falling {
		falling[i] = 1.2 - float64(i)*0.0004
	}
	for name, sizes := range map[string][]float64{
		"even":     repeat(1, 1000),
		"0.1 %":    jittered(1000, 0.001),
		"20 %":     jittered(1000, 0.2),
		"falling":  falling,
		"tiny":     repeat(0.01, 1000),
		"any size": jittered(1000, 0.99),
		"ten fold": jittered(10_000, 0.2),
	} {
		t.Run(name, func(t *testing.T) {
			written, _, most := simulate(SizeTiered, sum, sizes)
			total := 0.0
			for _, size := range sizes {
				total += max(1, size) // the rule counts smaller tables as 1
			}
			n := math.Log2(float64(len(sizes)))
			require.LessOrEqual(t, written/total, n, "write cost grows as n log n")
			require.LessOrEqual(t, float64(most), 2*n, "tables")
			t.Logf("amplification %.2f, at most %d tables", written/total, most)
		})
	}
}

// TestPlannerWithOverwritesAndDeletes: merges that shrink their inputs write less than
// merges of distinct keys, and leave as few tables.
func TestPlannerWithOverwritesAndDeletes(t *testing.T) {
	const flushes = 1000
	all, _, most := simulate(SizeTiered, sum, repeat(1, flushes))
	for name, merge := range map[string]func([]float64, bool) float64{
		"few keys":  overlapping(4),
		"many keys": overlapping(200),
		"half of the writes delete": func(sizes []float64, oldest bool) float64 {
			if oldest { // tombstones are dropped
				return sum(sizes, oldest) / 2
			}
			return sum(sizes, oldest)
		},
		"all keys are deleted": func(sizes []float64, oldest bool) float64 {
			if oldest {
				return 0
			}
			return sum(sizes, oldest)
		},
	} {
		t.Run(name, func(t *testing.T) {
			written, _, tables := simulate(SizeTiered, merge, repeat(1, flushes))
			require.LessOrEqual(t, written, all)
			require.LessOrEqual(t, tables, most+1)
		})
	}
}

// TestMergeRules compares the contents of stores with each rule.
func TestMergeRules(t *testing.T) {
	const flushes = 20
	for rule, tables := range map[MergeRule]int{SizeTiered: 2, MergeAlways: 1, MergeNever: flushes} {
		db := open(t, "db", &Options{FS: vfs.NewMem(), MemtableBytes: minMemtableBytes, MergeRule: rule})
		value := strings.Repeat("a memtable full", minMemtableBytes/15)
		for i := range flushes {
			set(t, db, strconv.Itoa(i), value)
			require.NoError(t, db.Flush())
			require.NoError(t, db.WaitIdle(t.Context()))
		}
		s := db.Stats()
		require.Len(t, s.Tables, tables)
		state, err := read(db)
		require.NoError(t, err)
		require.Len(t, state, flushes)
	}
	_, err := Open("db", &Options{MergeRule: MergeNever + 1})
	require.ErrorContains(t, err, "merge rule")
}

func TestTableUnits(t *testing.T) {
	require.EqualValues(t, 1, tableUnits(0, 100))
	require.EqualValues(t, 1, tableUnits(149, 100))
	require.EqualValues(t, 2, tableUnits(150, 100))
	require.EqualValues(t, 40, tableUnits(4000, 100))
}
