package livepage

import (
	"cmp"
	"math"
	"slices"
)

// heatCells is the maximum number of cells of a filter; if it has more pages, neighbours
// share a cell.
const heatCells = 96

// cell shows one or more filter pages.
type cell struct {
	Pages      int
	Resident   float64 // fraction of their bytes in memory
	Usefulness float64 // average of their pages
	Heat       float64 // Usefulness on a logarithmic scale from 0 to 1, common to all cells
	Fell       bool    // less of it is in memory than before
}

// cells divides pages evenly among at most n cells, in order.
func cells(pages []FilterPage, n int) []cell {
	n = min(n, len(pages))
	result := make([]cell, n)
	for i := range result {
		group := pages[i*len(pages)/n : (i+1)*len(pages)/n]
		var bytes, resident int64
		var useful float64
		for _, p := range group {
			bytes += p.Bytes
			useful += p.Usefulness
			if p.Resident {
				resident += p.Bytes
			}
		}
		result[i] = cell{Pages: len(group), Resident: float64(resident) / float64(max(1, bytes)), Usefulness: useful / float64(len(group))}
	}
	return result
}

// heatRow shows the filter of a table.
type heatRow struct {
	Table uint64
	Cells []cell
}

// heatMap shows the filters of an index: by table, and all pages ordered by usefulness with
// the memory budget as a line.
type heatMap struct {
	Rows    []heatRow
	Ranking []cell
	// Budget is the fraction of the ranking that fits into the budget, at most 1.
	Budget float64
}

// residency is the fraction of each cell in memory, by table.
type residency map[uint64][]float64

// newHeatMap arranges the filters of an index; before is the previous residency.
func newHeatMap(f *Filter, before residency) heatMap {
	var m heatMap
	var all []FilterPage
	for _, table := range f.Tables {
		row := heatRow{table.Table, cells(table.Pages, heatCells)}
		if was := before[table.Table]; len(was) == len(row.Cells) {
			for i := range row.Cells {
				row.Cells[i].Fell = row.Cells[i].Resident < was[i]
			}
		}
		m.Rows = append(m.Rows, row)
		all = append(all, table.Pages...)
	}
	slices.SortStableFunc(all, func(a, b FilterPage) int {
		return cmp.Compare(b.Usefulness/float64(b.Bytes), a.Usefulness/float64(a.Bytes))
	})
	m.Ranking = cells(all, heatCells)
	if f.PageBytes > 0 {
		m.Budget = min(1, float64(max(0, f.BudgetBytes-f.IndexBytes))/float64(f.PageBytes))
	}
	most := 0.0
	m.each(func(c *cell) { most = max(most, c.Usefulness) })
	m.each(func(c *cell) {
		if most > 0 {
			c.Heat = math.Log1p(c.Usefulness) / math.Log1p(most)
		}
	})
	return m
}

func (m *heatMap) each(fn func(*cell)) {
	for i := range m.Rows {
		for j := range m.Rows[i].Cells {
			fn(&m.Rows[i].Cells[j])
		}
	}
	for i := range m.Ranking {
		fn(&m.Ranking[i])
	}
}

// residency returns the current residency.
func (m *heatMap) residency() residency {
	r := make(residency, len(m.Rows))
	for _, row := range m.Rows {
		for _, c := range row.Cells {
			r[row.Table] = append(r[row.Table], c.Resident)
		}
	}
	return r
}
