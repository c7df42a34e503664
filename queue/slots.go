package queue

import (
	"maps"
	"sync/atomic"
)

// slotTable maps the numbers of segments to the open files that hold them. Looking up
// takes no lock and is as fast for any number of segments. One goroutine at a time
// changes the table.
type slotTable struct {
	pages atomic.Pointer[map[SegmentID]*slotPage] // the map is replaced, never changed
}

type slotPage [1 << slotPageBits]atomic.Pointer[cachedFile]

// slotPageBits makes a page of 8 KiB, for 64 GiB of documents in segments of the
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
