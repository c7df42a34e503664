package queue

import (
	"docstore/internal/vfs"
	"docstore/queue/codec"
	"docstore/queue/internal/segment"
)

// Batches. A fetch from a mapped segment has two cache misses in sequence: the block's
// header and entry, and the stored bytes; with a Place it has only the second. A batch takes
// each step for a group of documents and prefetches what the next step reads, so that the
// misses overlap.
//
// A document that a batch cannot read is fetched again by itself, for the error.

// Wanted is a document to be fetched.
type Wanted struct {
	ID      []byte
	Address Address
	Place   Place // of the document, from its Entry; zero: unknown
}

// groupDocuments is the size of a group: more than the cache misses that a processor
// overlaps, and few enough for prefetched lines to stay in the cache until they are read.
const groupDocuments = 16

// prefetchedBytes bounds the prefetched part of a document. The processor's own prefetcher
// continues from there.
const prefetchedBytes = 512

// StoredForAll is StoredFor of many documents, in less time than as many calls of it. It
// appends each document to dst, in their order, and calls fn with its number, dst, and
// the other results of StoredFor. The next document is appended to the slice that fn
// returns; if fn returns false, StoredForAll returns that slice.
func (r *Reader) StoredForAll(dst []byte, wanted []Wanted, take codec.Set, fn func(i int, dst []byte, asStored bool, err error) ([]byte, bool)) []byte {
	var g fetchGroup
	g.init(r, take)
	defer g.spare.Release()
	for begin := 0; begin < len(wanted); begin += groupDocuments {
		group := wanted[begin:min(begin+groupDocuments, len(wanted))]
		g.locate(group)
		for i := range group {
			out, asStored, err := g.read(dst, i, &group[i])
			var more bool
			if dst, more = fn(begin+i, out, asStored, err); !more {
				g.release()
				return dst
			}
		}
		g.release()
	}
	return dst
}

// fetchGroup is a group of documents that are fetched together.
type fetchGroup struct {
	request request        // of the document that is read
	window  segment.Window // of the file current
	current *segment.CachedFile
	spare   *segment.Scratch
	docs    [groupDocuments]struct {
		segment.Location
		file   *segment.CachedFile // nil: the document is fetched by itself
		placed bool                // the location is that of a Place
	}
	files [groupDocuments]*segment.CachedFile // to be released
	used  int                                 // of files
}

func (g *fetchGroup) init(r *Reader, take codec.Set) {
	g.request.r, g.request.Take, g.spare = r, take, segment.GetScratch()
}

// locate locates the documents of a group and prefetches them.
func (g *fetchGroup) locate(group []Wanted) {
	for i, w := range group {
		d := &g.docs[i]
		d.file = g.file(w.Address.Segment)
		if d.file == nil {
			continue
		}
		if d.Location, d.placed = w.Place.Location(d.file.File, w.Address, w.ID); d.placed {
			d.file.Prefetch(d.Data, min(int64(d.StoredBytes()), prefetchedBytes))
			continue
		}
		var err error
		if d.Block, err = d.file.Find(w.Address); err != nil {
			d.file = nil
			continue
		}
		d.file.PrefetchEntry(d.Block, w.Address.Index)
	}
	located := 0
	_ = vfs.Guard(func() {
		for i, w := range group {
			if d := &g.docs[i]; d.file != nil && !d.placed {
				g.moveTo(d.file)
				if d.Locate(&g.window, w.Address, w.Place) != nil {
					d.file = nil
				} else {
					d.file.Prefetch(d.Data, min(int64(d.StoredBytes()), prefetchedBytes))
				}
			}
			located++
		}
	})
	for i := located; i < len(group); i++ { // a fault
		g.docs[i].file = nil
	}
}

// MoveTo makes the window that of a mapped file.
func (g *fetchGroup) moveTo(f *segment.CachedFile) {
	if g.current != f {
		g.window, g.current = f.NewWindow(g.spare), f
	}
}

// read is StoredFor of document i of the group.
func (g *fetchGroup) read(dst []byte, i int, wanted *Wanted) (_ []byte, asStored bool, _ error) {
	d, q := &g.docs[i], &g.request
	if d.file != nil && len(wanted.ID) > 0 {
		g.moveTo(d.file)
		q.ID, q.At, q.Dst = wanted.ID, wanted.Address, dst
		if q.Read(&g.window, &d.Location, q.r.files.Decoders) == nil {
			return q.Dst, q.AsStored, nil
		}
	}
	return q.r.StoredFor(dst, *wanted, q.Take)
}

// file returns the segment's file if it is open and mapped, else nil.
func (g *fetchGroup) file(n SegmentID) *segment.CachedFile {
	for _, f := range g.files[:g.used] {
		if f.Header.Holds(n) {
			return f
		}
	}
	f := g.request.r.files.Get(n)
	switch {
	case f == nil:
		return nil
	case f.Mapping == nil:
		g.request.r.files.Put(f)
		return nil
	}
	g.files[g.used] = f
	g.used++
	return f
}

// release puts the files of a group back.
func (g *fetchGroup) release() {
	for _, f := range g.files[:g.used] {
		g.request.r.files.Put(f)
	}
	g.used = 0
}
