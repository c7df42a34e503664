package bloom

// table is what the ranking knows of a table's filter.
type table struct {
	indexBytes int64
	pages      int
	pageBytes  int64 // of each page but the last
	lastBytes  int64 // of the last page
}

func (f *Filter) table() table {
	t := table{indexBytes: f.index.memory(), pages: len(f.index.entries)}
	if t.pages > 0 {
		t.pageBytes = int64(f.index.entries[0].bytes)
		t.lastBytes = int64(f.index.entries[t.pages-1].bytes)
	}
	return t
}

// rank decides which pages are in memory: it returns, for each table, how many,
// counted from the smallest key. All indexes are in memory anyway. What they leave of
// the budget goes to the pages of the first table, which is the newest, then to
// those of the next, up to the first page that does not fit.
func rank(budget int64, newestFirst []table) []int {
	for _, t := range newestFirst {
		budget -= t.indexBytes
	}
	resident := make([]int, len(newestFirst))
	for i, t := range newestFirst {
		if t.pages == 0 {
			continue
		}
		full := min(int64(t.pages-1), max(0, budget)/t.pageBytes)
		budget -= full * t.pageBytes
		resident[i] = int(full)
		if resident[i] < t.pages-1 || t.lastBytes > budget {
			break
		}
		budget -= t.lastBytes
		resident[i]++
	}
	return resident
}
