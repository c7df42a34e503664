package queue

import (
	"maps"
	"sync/atomic"
)

// slotTable maps segment numbers to open files. A lookup takes no lock and constant time.
// Changes need external locking.
type slotTable struct {
	pages atomic.Pointer[map[SegmentID]*slotPage] // the map is immutable and replaced as a whole
}

type slotPage [1 << slotPageBits]atomic.Pointer[cachedFile]

// slotPageBits sets the page size: 8 KiB, for 64 GiB of documents in segments of the
// default size.
const slotPageBits = 10

func (t *slotTable) get(n SegmentID) *cachedFile {
	pages := t.pages.Load()
	if pages == nil {
		return nil
	}
	page := (*pages)[n>>slotPageBits]
	if page == nil {
		return nil
	}
	return page[n%(1<<slotPageBits)].Load()
}

func (t *slotTable) set(n SegmentID, f *cachedFile) {
	var pages map[SegmentID]*slotPage
	if p := t.pages.Load(); p != nil {
		pages = *p
	}
	page := pages[n>>slotPageBits]
	if page == nil {
		page = new(slotPage)
		next := make(map[SegmentID]*slotPage, len(pages)+1)
		maps.Copy(next, pages)
		next[n>>slotPageBits] = page
		t.pages.Store(&next)
	}
	page[n%(1<<slotPageBits)].Store(f)
}
