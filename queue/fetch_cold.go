package queue

import (
	"sync"

	"docstore/internal/residency"
	"docstore/internal/vfs"
	"docstore/queue/internal/segment"
)

// Documents that are not in memory. A fetch of one from a mapped segment has up to three
// page faults in sequence: the block's header, the entry, and the stored bytes; with a Place
// it has only the last. ReadAhead asks the kernel for the documents with a Place and the
// tables of the blocks of others first, and then for these documents, so that the disk reads
// the pages of a batch concurrently. The whole table is read: it is contiguous, so that
// takes one read instead of three, and the documents of a block share it.

// coldDocuments is the number of documents that are read ahead together.
const coldDocuments = 256

// maxColdTableBytes bounds the part of a table that is read ahead.
const maxColdTableBytes = 64 << 10

// coldFetch is a group of documents that are read ahead together.
type coldFetch struct {
	ranges residency.Ranges
	docs   [coldDocuments]struct {
		file  *segment.CachedFile // nil: the document is not read ahead
		block int64
	}
	files []*segment.CachedFile // to be put back, each once
}

var coldFetches = sync.Pool{New: func() any { return new(coldFetch) }}

// ReadAhead asks the kernel to read what StoredFor and StoredForAll read of the documents,
// as far as their files are mapped, and waits for the parts that locate the documents. It
// costs more than it saves if the documents are in memory. It reports no errors.
func (r *Reader) ReadAhead(wanted []Wanted) {
	c := coldFetches.Get().(*coldFetch)
	for begin := 0; begin < len(wanted); begin += coldDocuments {
		group := wanted[begin:min(begin+coldDocuments, len(wanted))]
		c.readTables(r, group)
		c.readDocuments(group)
		for _, f := range c.files {
			r.files.Put(f)
		}
		clear(c.files)
		c.files = c.files[:0]
	}
	clear(c.docs[:min(len(wanted), coldDocuments)])
	coldFetches.Put(c)
}

// Resident returns the share of the mapped segments that is in memory, from a sample, and
// their bytes, 0 if the system does not tell the share. A sealed segment is mapped when a
// document of it is first fetched.
func (r *Reader) Resident() (share float64, mapped int64) {
	files := r.files.Mapped()
	defer func() {
		for _, f := range files {
			r.files.Put(f)
		}
	}()
	mappings := make([][]byte, len(files))
	for i, f := range files {
		mappings[i] = f.Mapping.Bytes()
	}
	return residency.Share(mappings)
}

// readTables requests the tables of the documents' blocks.
func (c *coldFetch) readTables(r *Reader, group []Wanted) {
	for i, w := range group {
		d := &c.docs[i]
		if d.file = c.file(r, w.Address.Segment); d.file == nil {
			continue
		}
		if l, placed := w.Place.Location(d.file.File, w.Address, w.ID); placed {
			c.add(d.file, l.Data, l.Data+int64(l.StoredBytes()))
			d.file = nil
			continue
		}
		var err error
		if d.block, err = d.file.Find(w.Address); err != nil {
			d.file = nil
			continue
		}
		c.add(d.file, d.block, d.block+min(d.file.TableBytes(w.Address.Index), maxColdTableBytes))
	}
	c.ranges.Read()
}

// readDocuments locates the documents, which waits for the tables, and requests them.
func (c *coldFetch) readDocuments(group []Wanted) {
	for i, w := range group {
		d := &c.docs[i]
		if d.file == nil {
			continue
		}
		window := d.file.NewWindow(nil)
		l := segment.Location{Block: d.block}
		var err error
		if fault := vfs.Guard(func() { err = l.Locate(&window, w.Address, w.Place) }); fault != nil || err != nil {
			continue // the fetch reports it
		}
		c.add(d.file, l.Data, l.Data+int64(l.StoredBytes()))
	}
	c.ranges.Read()
}

// add adds a range of a mapped file, as far as the file has it.
func (c *coldFetch) add(f *segment.CachedFile, from, to int64) {
	mapped := f.Mapping.Bytes()
	if to = min(to, int64(len(mapped))); from < to {
		c.ranges.Add(mapped[from:to])
	}
}

// file returns the segment's file if it is open and mapped, else nil.
func (c *coldFetch) file(r *Reader, n SegmentID) *segment.CachedFile {
	for _, f := range c.files {
		if f.Header.Holds(n) {
			return f
		}
	}
	f := r.files.Get(n)
	switch {
	case f == nil:
		return nil
	case f.Mapping == nil:
		r.files.Put(f)
		return nil
	}
	c.files = append(c.files, f)
	return f
}
