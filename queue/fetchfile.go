package queue

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"docstore/internal/checksum"
	"docstore/queue/codec"
	"docstore/queue/stored"

	"github.com/cockroachdb/errors"
)

// Reading one document from one file. A fetch has three steps, and each tells the next
// where to read:
//
//	find     the relocations of a rewrite give the block; an original needs no lookup
//	locate   the block's header and table give the places of the id and the stored bytes
//	read     copies the stored bytes, and verifies the document's checksum
//
// A fetch with a Place needs the first step only for rewrites and skips the second. If it
// does not find the document there, it starts again without the Place.
//
// The first two trust no byte but check every bound. The checksum in the third covers the
// address, id, length and bytes of the document, so a wrong location is an error and never
// another document. An answer that there is no document is given only by tables that were
// verified. StoredForAll takes each step for a group of documents.

// fetch is a document to be fetched.
type fetch struct {
	id    []byte // nil: any id
	at    Address
	place Place     // of the document; zero: unknown
	take  codec.Set // codecs that the caller can decode: it gets the stored form
	dst   []byte    // the document is appended to it; unchanged on any error

	lengthOnly bool // do not read the document

	asStored bool // result: the stored form was appended
	length   int  // result with lengthOnly: of the decoded document
}

// location is where a file has a document. It is unverified.
type location struct {
	entry
	block    int64 // file offset of the block
	id, data int64 // file offsets of the id and the stored bytes; id is 0 if it is unknown
}

// windowBytes is how much of a block one system call reads of a file that is not mapped.
// The entry is often in it, and in a small block the id and document, too.
const windowBytes = 4 << 10

// window is the part of a file that is in memory: all of a mapped file, or the beginning
// of a block. Functions that use the window of a mapped file run under segmentFile.guard.
type window struct {
	file   *segmentFile
	offset int64 // of bytes in the file
	bytes  []byte
	ahead  *scratch // has bytes if the file is not mapped
	spare  *scratch // memory for one step
}

func (s *segmentFile) newWindow(spare *scratch) window {
	w := window{file: s, spare: spare}
	if s.mapping != nil {
		w.bytes = s.mapping.Bytes()
	} else {
		w.ahead = getScratch()
	}
	return w
}

func (w *window) release() {
	if w.ahead != nil {
		w.ahead.release()
	}
}

// moveTo reads the beginning of a block unless the file is mapped.
func (w *window) moveTo(block int64) error {
	if w.ahead == nil {
		return nil
	}
	b := w.ahead.sized(windowBytes)
	n, err := w.file.file.ReadAt(b, block)
	if err != nil && !errors.Is(err, io.EOF) {
		return w.file.readError(err)
	}
	w.offset, w.bytes = block, b[:n]
	return nil
}

// view returns n bytes of the file, in the window or in w.spare.
func (w *window) view(offset int64, n int) ([]byte, error) {
	if b := w.inside(offset, n); b != nil {
		return b, nil
	}
	if w.ahead == nil {
		return nil, errIncomplete
	}
	b := w.spare.sized(n)
	return b, w.file.readAt(b, offset)
}

// copy fills p from the file.
func (w *window) copy(p []byte, offset int64) error {
	if b := w.inside(offset, len(p)); b != nil {
		copy(p, b)
		return nil
	}
	if w.ahead == nil {
		return errIncomplete
	}
	return w.file.readAt(p, offset)
}

// inside returns n bytes of the window, or nil if it does not have them all.
func (w *window) inside(offset int64, n int) []byte {
	from := offset - w.offset
	if from < 0 || from > int64(len(w.bytes)) || int64(n) > int64(len(w.bytes))-from {
		return nil
	}
	return w.bytes[from : from+int64(n)]
}

// errLost: a repair has recorded the document as lost.
var errLost = errors.New("document was lost")

// errNotAtPlace: a Place has other bytes.
var errNotAtPlace = errors.New("queue: document is at another place")

// errNotInBlock: the table of a block, which was not verified, lacks the entry.
var errNotInBlock = errors.New("queue: block lacks the entry")

// locate sets the fields of l other than block, which is that of the address. It checks
// that the entry's id and stored bytes lie inside the block.
func (l *location) locate(w *window, at Address) error {
	s := w.file
	switch {
	case l.block >= s.header.firstFrame():
	case s.relocations != nil:
		return s.changedRelocations()
	default:
		return errors.Newf("queue: address %s lies in the segment's header", at)
	}
	// The bytes of a mapping may change, so header and entries are parsed from copies.
	var header [blockHeaderBytes]byte
	view, err := w.view(l.block, blockHeaderBytes)
	if err != nil {
		return err
	}
	copy(header[:], view)
	h, err := parseBlockHeader(header[:])
	if err != nil {
		return s.corruption(l.block, err)
	}
	if h.relocated != (s.relocations != nil) {
		return s.corruption(l.block, errBlockKind)
	}
	index := int(at.Index)
	if h.relocated {
		column, err := w.view(l.block+h.originOffset()+originBytes, originalIndexBytes*h.count)
		if err != nil {
			return err
		}
		if index = searchIndex(column, at.Index); index < 0 {
			return errNotInBlock
		}
	}
	if index >= h.count {
		return errors.Newf("queue: address %s is after the block's %d entries", at, h.count)
	}
	first := max(index-1, 0)
	if view, err = w.view(l.block+blockHeaderBytes+entryBytes*int64(first), entryBytes*(index-first+1)); err != nil {
		return err
	}
	var entries [2 * entryBytes]byte
	copy(entries[:], view)
	l.entry = parseEntry(entries[:], index)
	if err := l.check(&h); err != nil {
		return s.corruption(l.block, fmt.Errorf("entry %d: %w", index, err))
	}
	l.id = l.block + h.idsOffset() + int64(l.idStart)
	l.data = l.block + h.dataOffset() + int64(l.start)
	return nil
}

// searchIndex returns the position of an index in a column of original indexes, or -1.
func searchIndex(column []byte, index uint16) int {
	low, high := 0, len(column)/originalIndexBytes
	for low < high {
		if middle := (low + high) / 2; little.Uint16(column[originalIndexBytes*middle:]) < index {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if originalIndexBytes*low == len(column) || little.Uint16(column[originalIndexBytes*low:]) != index {
		return -1
	}
	return low
}

// from appends the document from a file that has its segment. The error is errAbsent if a
// rewrite does not have it, and errLost if a repair has recorded its loss.
func (q *fetch) from(s *segmentFile, decoders *stored.DecoderCache) error {
	spare := getScratch()
	defer spare.release()
	w := s.newWindow(spare)
	defer w.release()
	l, placed := q.place.location(s, q.at, q.id)
	if placed && q.read(&w, &l, decoders) == nil {
		return nil
	}
	l = location{}
	var err error
	if l.block, err = s.find(q.at); err != nil {
		return err
	}
	if err := w.moveTo(l.block); err != nil {
		return err
	}
	err = s.guard(func() error { return l.locate(&w, q.at) })
	if errors.Is(err, errNotInBlock) {
		err = s.verifyEntry(l.block, q.at)
		if err == nil {
			err = s.corruption(l.block, errors.New("table has changed while it was read"))
		}
	}
	if err != nil {
		return err
	}
	return q.read(&w, &l, decoders)
}

// read copies and verifies the document at a location and appends it to q.dst.
func (q *fetch) read(w *window, l *location, decoders *stored.DecoderCache) error {
	if q.lengthOnly {
		q.length = l.rawBytes()
		return nil
	}
	s := w.file
	asStored := q.take != 0 && !l.deleted() && !l.lost() && (l.storedRaw() || q.take.Has(s.header.codec))
	coded := l.hasCoded() && !asStored
	// The checksum covers the place, the id and the stored bytes. The first two are put
	// together in scratch memory, as are stored bytes that are going to be decoded.
	idEnd := placeBytes + int(l.idEnd-l.idStart)
	var b, document, out []byte
	if coded {
		b = w.spare.sized(idEnd + l.storedBytes())
		document = b[idEnd:]
	} else {
		start := len(q.dst)
		if asStored {
			start += storedHeaderBytes
		}
		b = w.spare.sized(idEnd)
		out = slices.Grow(q.dst, start-len(q.dst)+l.storedBytes())[:start+l.storedBytes()]
		document = out[start:]
	}
	putPlace(b, q.at, l.rawAndFlags)
	id := b[placeBytes:idEnd]
	// With the requested id in place of the file's, which may be on another page, the
	// checksum is right exactly if the file's is the same. If not, the file's id tells
	// another document from a damaged one.
	requested := len(q.id) == len(id)
	copy(id, q.id)
	got, err := l.read(w, b[:idEnd], document, requested)
	if err == nil && requested && got != l.crc {
		if l.id == 0 {
			return errNotAtPlace
		}
		got, err = l.read(w, b[:idEnd], document, false)
	}
	if err != nil {
		return err
	}
	if got != l.crc {
		return s.damagedDocument(l.data, id, wrongChecksum(l.crc, got))
	}
	switch {
	case q.id != nil && !bytes.Equal(q.id, id):
		return ErrMismatch
	case l.deleted():
		return ErrDeleted
	case l.lost():
		return errLost
	case asStored:
		s.header.putStored(out[len(q.dst):], q.at, &l.entry)
	case coded:
		dec, err := s.decoder(decoders)
		if err != nil {
			return err
		}
		if out, err = dec.Decode(q.dst, document, l.rawBytes()); err != nil {
			return s.damagedDocument(l.data, id, err)
		}
	}
	q.dst, q.asStored = out, asStored
	return nil
}

// read fills stored from the file, and the id at the end of place unless it has it, and
// returns the checksum of both.
func (l *location) read(w *window, place, stored []byte, hasID bool) (crc uint32, _ error) {
	err := w.file.guard(func() error {
		if !hasID {
			if err := w.copy(place[placeBytes:], l.id); err != nil {
				return err
			}
		}
		return w.copy(stored, l.data)
	})
	return checksum.Update(checksum.Update(0, place), stored), err
}
