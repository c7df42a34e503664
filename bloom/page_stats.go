package bloom

// PageStats describes a page for the ranking.
type PageStats struct {
	Bytes    int64
	Resident bool
	// Usefulness is the number of table lookups in about the last minute that the page
	// saved, or would have saved in memory. Pages are ranked by Usefulness per byte.
	Usefulness float64
}

// Pages appends the statistics of the pages of f, one of the Manager's filters, in key
// order. It waits while the Manager loads pages.
func (m *Manager) Pages(dst []PageStats, f *Filter) []PageStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	useful := usefulness(nil, f.tallies, f.share)
	for i := range f.pages {
		bytes := int64(f.index.entries[i].bytes)
		dst = append(dst, PageStats{
			Bytes:      bytes,
			Resident:   f.pages[i].Load() != nil,
			Usefulness: useful[i] * f.perByte(i) * float64(bytes),
		})
	}
	return dst
}
