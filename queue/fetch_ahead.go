package queue

import (
	"bytes"
	"slices"
	"sort"

	"docstore/internal/prefetch"
	"docstore/internal/vfs"
)

// Stored forms out of mapped segments. What a daemon sends is copied once, from the
// mapping to where it goes out, and verified there. A document is three waits for
// memory, each for where the next one is: its block's header and entry, its id, its
// bytes. Of many documents these waits are made side by side: each step is taken for a
// group of them, and has the processor fetch what the next one needs.
//
// Whatever is not as it should be on this way is asked for again on the way of
// fetch.go, which says what is wrong.

// Wanted is a document that is to be fetched.
type Wanted struct {
	ID      []byte
	Address Address
}

// groupDocuments is how many take each step together: more than the lines of memory
// that a processor fetches at a time, and few enough for what was fetched to be there
// still when it is read.
const groupDocuments = 16

// prefetchedBytes is how much of a document is fetched ahead; of a longer one the
// processor sees by then where this goes on.
const prefetchedBytes = 512

// StoredForAll is StoredFor of many documents, in less time than as many calls of it.
// They are appended to dst one by one, in their order, and after each fn is called with
// its number, dst, and what StoredFor would have returned. What fn returns is dst for
// the next one; false ends it.
func (r *Reader) StoredForAll(dst []byte, wanted []Wanted, take CodecSet, fn func(i int, dst []byte, asStored bool, err error) ([]byte, bool)) []byte {
	var g fetchGroup
	for begin := 0; begin < len(wanted); begin += groupDocuments {
		group := wanted[begin:min(begin+groupDocuments, len(wanted))]
		g.place(r, group)
		for i, w := range group {
			out, asStored, err := dst, false, error(nil)
			if p := &g.placed[i]; p.found {
				out, asStored = p.file.appendPlaced(dst, w.ID, w.Address, p, take)
			}
			if !asStored {
				out, asStored, err = r.StoredFor(dst, w.ID, w.Address, take)
			}
			var more bool
			if dst, more = fn(begin+i, out, asStored, err); !more {
				g.release(r)
				return dst
			}
		}
		g.release(r)
	}
	return dst
}

// FetchAhead has the processor fetch what StoredFor will read of documents, as far as
// that is mapped. What is wrong with one StoredFor finds out.
func (r *Reader) FetchAhead(wanted []Wanted) {
	var g fetchGroup
	for begin := 0; begin < len(wanted); begin += groupDocuments {
		g.place(r, wanted[begin:min(begin+groupDocuments, len(wanted))])
		g.release(r)
	}
}

// fetchGroup is documents that are fetched together.
type fetchGroup struct {
	placed [groupDocuments]placed
	files  [groupDocuments]*cachedFile // to be put back
	used   int                         // of files
}

// placed is where a mapped segment has a document. None of it is verified.
type placed struct {
	entry
	file     *cachedFile // nil: the document is in none
	found    bool        // entry, id and document are of use
	block    int64       // the offsets of its block,
	id, data int64       // of its id and of what is stored of it
}

// place finds where the documents of a group lie and has them fetched.
func (g *fetchGroup) place(r *Reader, group []Wanted) {
	for i, w := range group {
		p := &g.placed[i]
		*p = placed{file: g.file(r, w.Address.Segment)}
		if p.file == nil {
			continue
		}
		var err error
		if p.block, err = p.file.find(w.Address); err != nil {
			p.file = nil
			continue
		}
		p.file.prefetch(p.block, blockHeaderBytes)
		p.file.prefetch(p.block+blockHeaderBytes+entryBytes*int64(max(w.Address.Index, 1)-1), 2*entryBytes)
	}
	// After a fault those that are not placed yet are fetched the other way.
	_ = vfs.Guard(func() {
		for i, w := range group {
			p := &g.placed[i]
			if p.file == nil {
				continue
			}
			p.found = p.file.readPlace(p, w.Address)
		}
	})
}

// file is the segment's file if it is open and mapped.
func (g *fetchGroup) file(r *Reader, n SegmentID) *cachedFile {
	for _, f := range g.files[:g.used] {
		if f.header.holds(n) {
			return f
		}
	}
	f := r.files.get(n)
	switch {
	case f == nil:
		return nil
	case f.mapping == nil:
		r.files.put(f)
		return nil
	}
	g.files[g.used] = f
	g.used++
	return f
}

// release gives the files back.
func (g *fetchGroup) release(r *Reader) {
	for _, f := range g.files[:g.used] {
		r.files.put(f)
	}
	g.used = 0
}

// prefetch has bytes of a mapped file fetched, as far as it goes.
func (s *segmentFile) prefetch(offset, n int64) {
	mapped := s.mapping.Bytes()
	if offset < int64(len(mapped)) {
		prefetch.Bytes(mapped[offset:min(offset+n, int64(len(mapped)))])
	}
}

// readPlace completes p, of which it has the block, by what the block's header and
// table say, has it fetched, and reports whether that is of use. It runs under
// vfs.Guard.
func (s *segmentFile) readPlace(p *placed, at Address) bool {
	mapped := s.mapping.Bytes()
	room := int64(len(mapped)) - p.block
	if p.block < s.header.firstFrame() || room < blockHeaderBytes {
		return false
	}
	var header [blockHeaderBytes]byte // a copy, as what is mapped may change
	copy(header[:], mapped[p.block:])
	h, err := parseBlockHeader(header[:])
	if err != nil || h.relocated != (s.relocations != nil) || h.size() > room {
		return false
	}
	index := int(at.Index)
	if h.relocated {
		column := mapped[p.block+h.originOffset()+originBytes:]
		index = sort.Search(h.count, func(i int) bool { return little.Uint16(column[originalIndexBytes*i:]) >= at.Index })
		if index == h.count || little.Uint16(column[originalIndexBytes*index:]) != at.Index {
			return false
		}
	}
	if index >= h.count {
		return false
	}
	var entries [2 * entryBytes]byte
	copy(entries[:], mapped[p.block+blockHeaderBytes+entryBytes*int64(max(index-1, 0)):])
	p.entry = parseEntry(entries[:], index)
	if p.check(&h) != nil {
		return false
	}
	p.id = p.block + h.idsOffset() + int64(p.idStart)
	p.data = p.block + h.dataOffset() + int64(p.start)
	s.prefetch(p.id, int64(p.idEnd-p.idStart))
	s.prefetch(p.data, min(int64(p.storedBytes()), prefetchedBytes))
	return true
}

// appendPlaced appends the stored form of a document that was placed, verified. False:
// it is to be fetched the other way, and dst is unchanged.
func (s *segmentFile) appendPlaced(dst, id []byte, at Address, p *placed, take CodecSet) ([]byte, bool) {
	taken := take != 0 && (p.storedRaw() || take.has(s.header.codec))
	if !taken || p.deleted() || p.lost() || int(p.idEnd-p.idStart) != len(id) {
		return dst, false
	}
	mapped, start := s.mapping.Bytes(), len(dst)
	size := storedHeaderBytes + p.storedBytes()
	grown := slices.Grow(dst, size)[:start+size]
	form := grown[start:]
	same := false
	fault := vfs.Guard(func() {
		same = bytes.Equal(mapped[p.id:p.id+int64(len(id))], id)
		copy(form[storedHeaderBytes:], mapped[p.data:])
	})
	if fault != nil || !same {
		return dst, false
	}
	s.header.putStored(form, at, &p.entry)
	if documentCRCIn(form, id) != p.crc {
		return dst, false
	}
	return grown, true
}

// appendMapped is appendPlaced of a document that is still to be found.
func (s *segmentFile) appendMapped(dst, id []byte, at Address, take CodecSet) ([]byte, bool) {
	var p placed
	var err error
	if p.block, err = s.find(at); err != nil {
		return dst, false
	}
	if fault := vfs.Guard(func() { p.found = s.readPlace(&p, at) }); fault != nil || !p.found {
		return dst, false
	}
	return s.appendPlaced(dst, id, at, &p, take)
}
