package queue

import (
	"docstore/internal/vfs"
	"docstore/queue/codec"
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
	defer g.spare.release()
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

// FetchAhead prefetches the bytes that StoredFor reads of the documents, as far as their
// files are mapped. It reports no errors.
func (r *Reader) FetchAhead(wanted []Wanted) {
	var g fetchGroup
	g.init(r, 0)
	defer g.spare.release()
	for begin := 0; begin < len(wanted); begin += groupDocuments {
		g.locate(wanted[begin:min(begin+groupDocuments, len(wanted))])
		g.release()
	}
}

// fetchGroup is a group of documents that are fetched together.
type fetchGroup struct {
	request request // of the document that is read
	window  window  // of the file current
	current *cachedFile
	spare   *scratch
	docs    [groupDocuments]struct {
		location
		file   *cachedFile // nil: the document is fetched by itself
		placed bool        // the location is that of a Place
	}
	files [groupDocuments]*cachedFile // to be released
	used  int                         // of files
}

func (g *fetchGroup) init(r *Reader, take codec.Set) {
	g.request.r, g.request.take, g.spare = r, take, getScratch()
}

// locate locates the documents of a group and prefetches them.
func (g *fetchGroup) locate(group []Wanted) {
	for i, w := range group {
		d := &g.docs[i]
		d.file = g.file(w.Address.Segment)
		if d.file == nil {
			continue
		}
		if d.location, d.placed = w.Place.location(d.file.segmentFile, w.Address, w.ID); d.placed {
			d.file.prefetch(d.data, min(int64(d.storedBytes()), prefetchedBytes))
			continue
		}
		var err error
		if d.block, err = d.file.find(w.Address); err != nil {
			d.file = nil
			continue
		}
		d.file.prefetchEntry(d.block, w.Address.Index)
	}
	located := 0
	_ = vfs.Guard(func() {
		for i, w := range group {
			if d := &g.docs[i]; d.file != nil && !d.placed {
				g.moveTo(d.file)
				if d.locate(&g.window, w.Address) != nil {
					d.file = nil
				} else {
					d.file.prefetch(d.data, min(int64(d.storedBytes()), prefetchedBytes))
				}
			}
			located++
		}
	})
	for i := located; i < len(group); i++ { // a fault
		g.docs[i].file = nil
	}
}

// moveTo makes the window that of a mapped file.
func (g *fetchGroup) moveTo(f *cachedFile) {
	if g.current != f {
		g.window, g.current = f.newWindow(g.spare), f
	}
}

// read is StoredFor of document i of the group.
func (g *fetchGroup) read(dst []byte, i int, wanted *Wanted) (_ []byte, asStored bool, _ error) {
	d, q, again := &g.docs[i], &g.request, *wanted
	if d.file != nil && len(wanted.ID) > 0 {
		g.moveTo(d.file)
		q.id, q.at, q.dst = wanted.ID, wanted.Address, dst
		if q.read(&g.window, &d.location, q.r.files.decoders) == nil {
			return q.dst, q.asStored, nil
		}
		again.Place = Place{}
	}
	return q.r.StoredFor(dst, again, q.take)
}

// file returns the segment's file if it is open and mapped, else nil.
func (g *fetchGroup) file(n SegmentID) *cachedFile {
	for _, f := range g.files[:g.used] {
		if f.header.holds(n) {
			return f
		}
	}
	f := g.request.r.files.get(n)
	switch {
	case f == nil:
		return nil
	case f.mapping == nil:
		g.request.r.files.put(f)
		return nil
	}
	g.files[g.used] = f
	g.used++
	return f
}

// release puts the files of a group back.
func (g *fetchGroup) release() {
	for _, f := range g.files[:g.used] {
		g.request.r.files.put(f)
	}
	g.used = 0
}
