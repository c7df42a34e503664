package bloom

// PageStats is a page as the ranking sees it.
type PageStats struct {
	Bytes    int64
	Resident bool
	// Usefulness is the number of look-ups in the last minute or so that the page
	// spared the table, or would have spared it in memory: what pages are ranked
	// by, for each of their bytes.
	Usefulness float64
}

// Pages appends what the Manager knows of the pages of f, one of its filters, in the
// order of their keys. It waits while the Manager loads pages.
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
