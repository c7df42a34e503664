package segment

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
// does not find the document there, it takes all three steps, and the entry in the table must have
// the checksum of the Place.
//
// The first two trust no byte but check every bound. The checksum in the third covers the
// address, id, length and bytes of the document, so a wrong location is an error and never
// another document. An answer that there is no document is given only by tables that were
// verified. StoredForAll takes each step for a group of documents.

// Fetch is a document to be fetched.
type Fetch struct {
	ID    []byte // nil: any id
	At    Address
	Place Place     // of the document; zero: unknown
	Take  codec.Set // codecs that the caller can decode: it gets the stored form
	Dst   []byte    // the document is appended to it; unchanged on any error

	LengthOnly bool // do not read the document

	AsStored bool // result: the stored form was appended
	Length   int  // result with LengthOnly: of the decoded document
}

// Location is where a file has a document. It is unverified.
type Location struct {
	Entry
	Block    int64 // file offset of the block
	id, Data int64 // file offsets of the id and the stored bytes; id is 0 if it is unknown
}

// windowBytes is how much of a block one system call reads of a file that is not mapped.
// The entry is often in it, and in a small block the id and document, too.
const windowBytes = 4 << 10

// Window is the part of a file that is in memory: all of a mapped file, or the beginning
// of a block. Functions that use the window of a mapped file run under File.guard.
type Window struct {
	file   *File
	offset int64 // of bytes in the file
	bytes  []byte
	ahead  *Scratch // has bytes if the file is not mapped
	spare  *Scratch // memory for one step
}

// NewWindow returns a window on the file, which the caller releases. spare is not used before
// Locate or Read.
func (s *File) NewWindow(spare *Scratch) Window {
	w := Window{file: s, spare: spare}
	if s.Mapping != nil {
		w.bytes = s.Mapping.Bytes()
	} else {
		w.ahead = GetScratch()
	}
	return w
}

// Release releases the memory of the window.
func (w *Window) Release() {
	if w.ahead != nil {
		w.ahead.Release()
	}
}

// MoveTo reads the beginning of a block unless the file is mapped.
func (w *Window) MoveTo(block int64) error {
	if w.ahead == nil {
		return nil
	}
	b := w.ahead.Sized(windowBytes)
	n, err := w.file.Handle.ReadAt(b, block)
	if err != nil && !errors.Is(err, io.EOF) {
		return w.file.readError(err)
	}
	w.offset, w.bytes = block, b[:n]
	return nil
}

// view returns n bytes of the file, in the window or in w.spare.
func (w *Window) view(offset int64, n int) ([]byte, error) {
	if b := w.inside(offset, n); b != nil {
		return b, nil
	}
	if w.ahead == nil {
		return nil, ErrPartial
	}
	b := w.spare.Sized(n)
	return b, w.file.ReadAt(b, offset)
}

// copy fills p from the file.
func (w *Window) copy(p []byte, offset int64) error {
	if b := w.inside(offset, len(p)); b != nil {
		copy(p, b)
		return nil
	}
	if w.ahead == nil {
		return ErrPartial
	}
	return w.file.ReadAt(p, offset)
}

// inside returns n bytes of the window, or nil if it does not have them all.
func (w *Window) inside(offset int64, n int) []byte {
	from := offset - w.offset
	if from < 0 || from > int64(len(w.bytes)) || int64(n) > int64(len(w.bytes))-from {
		return nil
	}
	return w.bytes[from : from+int64(n)]
}

// ErrLost states that a repair has recorded the document as lost.
var ErrLost = errors.New("document was lost")

// errNotAtPlace: a Place has other bytes.
var errNotAtPlace = errors.New("queue: document is at another place")

// ErrOtherPlace states that the block's table has a document with another checksum than the Place.
var ErrOtherPlace = errors.New("queue: the document at the address does not have the checksum of its place")

// errNotInBlock: the table of a block, which was not verified, lacks the entry.
var errNotInBlock = errors.New("queue: block lacks the entry")

// Locate sets the fields of l other than block, which is that of the address. It checks
// that the entry's id and stored bytes lie inside the block. The error is ErrOtherPlace if the entry
// has a document whose checksum is not that of a Place, unless that is zero.
func (l *Location) Locate(w *Window, at Address, place Place) error {
	s := w.file
	switch {
	case l.Block >= s.Header.FirstFrame():
	case s.Relocations != nil:
		return s.changedRelocations()
	default:
		return errors.Newf("queue: address %s lies in the segment's header", at)
	}
	// The bytes of a mapping may change, so header and entries are parsed from copies.
	var header [BlockHeaderBytes]byte
	view, err := w.view(l.Block, BlockHeaderBytes)
	if err != nil {
		return err
	}
	copy(header[:], view)
	h, err := ParseBlockHeader(header[:])
	if err != nil {
		return s.Corruption(l.Block, err)
	}
	if h.RelocatedBlock != (s.Relocations != nil) {
		return s.Corruption(l.Block, errBlockKind)
	}
	index := int(at.Index)
	if h.RelocatedBlock {
		column, err := w.view(l.Block+h.OriginOffset()+OriginBytes, OriginalIndexBytes*h.Count)
		if err != nil {
			return err
		}
		if index = searchIndex(column, at.Index); index < 0 {
			return errNotInBlock
		}
	}
	if index >= h.Count {
		return errors.Newf("queue: address %s is after the block's %d entries", at, h.Count)
	}
	first := max(index-1, 0)
	if view, err = w.view(l.Block+BlockHeaderBytes+EntryBytes*int64(first), EntryBytes*(index-first+1)); err != nil {
		return err
	}
	var entries [2 * EntryBytes]byte
	copy(entries[:], view)
	l.Entry = ParseEntry(entries[:], index)
	if err := l.check(&h); err != nil {
		return s.Corruption(l.Block, fmt.Errorf("entry %d: %w", index, err))
	}
	l.id = l.Block + h.IdsOffset() + int64(l.IdStart)
	l.Data = l.Block + h.DataOffset() + int64(l.Start)
	if place != (Place{}) && l.CRC != place.Checksum() && !l.Deleted() && !l.Lost() {
		return ErrOtherPlace
	}
	return nil
}

// searchIndex returns the position of an index in a column of original indexes, or -1.
func searchIndex(column []byte, index uint16) int {
	low, high := 0, len(column)/OriginalIndexBytes
	for low < high {
		if middle := (low + high) / 2; Little.Uint16(column[OriginalIndexBytes*middle:]) < index {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if OriginalIndexBytes*low == len(column) || Little.Uint16(column[OriginalIndexBytes*low:]) != index {
		return -1
	}
	return low
}

// From appends the document from a file that has its segment. The error is ErrAbsent if a
// rewrite does not have it, ErrLost if a repair has recorded its loss, and ErrOtherPlace if the
// document does not have the checksum of the Place.
func (q *Fetch) From(s *File, decoders *stored.DecoderCache) error {
	spare := GetScratch()
	defer spare.Release()
	w := s.NewWindow(spare)
	defer w.Release()
	l, placed := q.Place.Location(s, q.At, q.ID)
	if placed && q.Read(&w, &l, decoders) == nil {
		return nil
	}
	l = Location{}
	var err error
	if l.Block, err = s.Find(q.At); err != nil {
		return err
	}
	if err := w.MoveTo(l.Block); err != nil {
		return err
	}
	err = s.guard(func() error { return l.Locate(&w, q.At, q.Place) })
	if errors.Is(err, errNotInBlock) {
		err = s.verifyEntry(l.Block, q.At)
		if err == nil {
			err = s.Corruption(l.Block, errors.New("table has changed while it was read"))
		}
	}
	if err != nil {
		return err
	}
	return q.Read(&w, &l, decoders)
}

// Read copies and verifies the document at a location and appends it to q.dst.
func (q *Fetch) Read(w *Window, l *Location, decoders *stored.DecoderCache) error {
	if q.LengthOnly {
		q.Length = l.RawBytes()
		return nil
	}
	s := w.file
	asStored := q.Take != 0 && !l.Deleted() && !l.Lost() && (l.StoredRaw() || q.Take.Has(s.Header.Codec))
	coded := l.HasCoded() && !asStored
	// The checksum covers the place, the id and the stored bytes. The first two are put
	// together in scratch memory, as are stored bytes that are going to be decoded.
	idEnd := placeBytes + int(l.IdEnd-l.IdStart)
	var b, document, out []byte
	if coded {
		b = w.spare.Sized(idEnd + l.StoredBytes())
		document = b[idEnd:]
	} else {
		start := len(q.Dst)
		if asStored {
			start += storedHeaderBytes
		}
		b = w.spare.Sized(idEnd)
		out = slices.Grow(q.Dst, start-len(q.Dst)+l.StoredBytes())[:start+l.StoredBytes()]
		document = out[start:]
	}
	putPlace(b, q.At, l.RawAndFlags)
	id := b[placeBytes:idEnd]
	// With the requested id in place of the file's, which may be on another page, the
	// checksum is right exactly if the file's is the same. If not, the file's id tells
	// another document from a damaged one.
	requested := len(q.ID) == len(id)
	copy(id, q.ID)
	got, err := l.read(w, b[:idEnd], document, requested)
	if err == nil && requested && got != l.CRC {
		if l.id == 0 {
			return errNotAtPlace
		}
		got, err = l.read(w, b[:idEnd], document, false)
	}
	if err != nil {
		return err
	}
	if got != l.CRC {
		return s.damagedDocument(l.Data, id, wrongChecksum(l.CRC, got))
	}
	switch {
	case q.ID != nil && !bytes.Equal(q.ID, id):
		return ErrMismatch
	case l.Deleted():
		return ErrDeleted
	case l.Lost():
		return ErrLost
	case asStored:
		s.Header.putStored(out[len(q.Dst):], q.At, &l.Entry)
	case coded:
		dec, err := s.decoder(decoders)
		if err != nil {
			return err
		}
		if out, err = dec.Decode(q.Dst, document, l.RawBytes()); err != nil {
			return s.damagedDocument(l.Data, id, err)
		}
	}
	q.Dst, q.AsStored = out, asStored
	return nil
}

// read fills stored from the file, and the id at the end of place unless it has it, and
// returns the checksum of both.
func (l *Location) read(w *Window, place, stored []byte, hasID bool) (crc uint32, _ error) {
	err := w.file.guard(func() error {
		if !hasID {
			if err := w.copy(place[placeBytes:], l.id); err != nil {
				return err
			}
		}
		return w.copy(stored, l.Data)
	})
	return checksum.Update(checksum.Update(0, place), stored), err
}
