package lsm

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// simulate flushes tables of the given sizes, in units, and merges as planned.
// Like the article, it counts the flush that begins a merge as a part of it. It
// returns what was written and the largest number of tables there was at rest.
func simulate(sizes []float64) (written float64, tables []float64, most int) {
	for _, size := range sizes {
		tables = append([]float64{size}, tables...)
		written += size
		for {
			units := make([]uint64, len(tables))
			for i, t := range tables {
				units[i] = tableUnits(uint64(t*1000), 1000)
			}
			begin, end := planMerge(units, noLimit)
			if begin == end {
				break
			}
			sum := 0.0
			for _, t := range tables[begin:end] {
				sum += t
			}
			written += sum
			if begin == 0 {
				written -= size // came from memory
			}
			rest := append([]float64{sum}, tables[end:]...)
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

func TestPlannerIsTheArticles(t *testing.T) {
	const jobs = 100_000
	written, tables, _ := simulate(repeat(1, 4))
	require.EqualValues(t, 800_000, written*jobs)
	require.Len(t, tables, 1)

	written, tables, most := simulate(repeat(1, 100))
	require.EqualValues(t, 37_600_000, written*jobs)
	require.Equal(t, []float64{4, 32, 64}, tables)
	require.LessOrEqual(t, most, 6)
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
		"flushed while a merge ran":           {[]uint64{1, 1, 1, 1, 1, 64}, noLimit, 0, 5},
		"the newest is small, others are due": {[]uint64{1, 2, 2, 9}, noLimit, 1, 3},
		"beside a larger merge":               {[]uint64{1, 1, 2, 4}, 9, 0, 4},
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
			written, _, most := simulate(sizes)
			total := 0.0
			for _, size := range sizes {
				total += max(1, size) // the rule counts no table for less
			}
			n := math.Log2(float64(len(sizes)))
			require.LessOrEqual(t, written/total, n, "write cost grows as n log n")
			require.LessOrEqual(t, float64(most), 1.5*n, "tables")
			t.Logf("amplification %.2f, at most %d tables", written/total, most)
		})
	}
}

func TestTableUnits(t *testing.T) {
	require.EqualValues(t, 1, tableUnits(0, 100))
	require.EqualValues(t, 1, tableUnits(149, 100))
	require.EqualValues(t, 2, tableUnits(150, 100))
	require.EqualValues(t, 40, tableUnits(4000, 100))
}
