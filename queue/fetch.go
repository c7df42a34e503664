package queue

import (
	"bytes"
	"fmt"
	"io"

	"github.com/cockroachdb/errors"

	"docstore/internal/checksum"
)

// verifyDocument checks what is stored of a document against its entry.
func verifyDocument(at Address, e *entry, id, stored []byte) error {
	if got := documentCRC(at, e.rawAndFlags, id, stored); got != e.crc {
		return wrongChecksum(e.crc, got)
	}
	return nil
}

func wrongChecksum(want, got uint32) error {
	return fmt.Errorf("document's checksum is %08x, its bytes have %08x", want, got)
}

// windowBytes is how much of a block is read at once where reading is a system
// call, in the hope that the entry and, in a small block, the id and document lie
// in it.
const windowBytes = 4 << 10

// window is a part of a file that was read ahead.
type window struct {
	offset int64
	bytes  []byte
}

// copy fills p from the file's offset, from the window if the bytes lie there.
func (w *window) copy(s *segmentFile, p []byte, offset int64) error {
	from := offset - w.offset
	if from >= 0 && from+int64(len(p)) <= int64(len(w.bytes)) {
		copy(p, w.bytes[from:])
		return nil
	}
	return s.readAt(p, offset)
}

// look reads the beginning of a block into memory of spare: of a mapped segment
// the header, of another one a window. Behind it spare has room for two entries.
func (s *segmentFile) look(spare *scratch, block int64) (w window, entries []byte, err error) {
	if s.mapping != nil {
		b := spare.sized(blockHeaderBytes + 2*entryBytes)
		w, entries = window{block, b[:blockHeaderBytes]}, b[blockHeaderBytes:]
		return w, entries, s.readAt(w.bytes, block)
	}
	b := spare.sized(windowBytes + 2*entryBytes)
	n, err := s.file.ReadAt(b[:windowBytes], block)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return w, nil, errors.Wrapf(err, "queue: reading segment %d", s.number)
	case n < blockHeaderBytes:
		return w, nil, errIncomplete
	}
	return window{block, b[:n]}, b[windowBytes:], nil
}

// located is a document that was found in its segment and verified.
type located struct {
	entry
	id, stored []byte // in scratch memory
	offset     int64  // of stored
}

// locate reads the entry, id and stored bytes of the document at the address into
// memory of spare and verifies them. It takes at most five reads, however large
// the segment and block are, and trusts nothing: the document's checksum covers
// its address, id and length.
func (s *segmentFile) locate(ahead, spare *scratch, at Address) (d located, err error) {
	block, err := s.find(at)
	if err != nil {
		return d, err
	}
	switch {
	case block >= s.header.firstFrame():
	case s.relocations != nil:
		return d, s.changedRelocations()
	default:
		return d, errors.Newf("queue: address %s lies in the segment's header", at)
	}
	w, entries, err := s.look(ahead, block)
	if err != nil {
		return d, err
	}
	h, err := parseBlockHeader(w.bytes[:blockHeaderBytes])
	if err != nil {
		return d, s.corruption(block, err)
	}
	if h.relocated != (s.relocations != nil) {
		return d, s.corruption(block, errors.New("a relocated block stands in a rewrite, any other one in an original"))
	}
	index, err := s.indexOf(&w, block, &h, at)
	if err != nil {
		return d, err
	}
	if index >= h.count {
		return d, errors.Newf("queue: address %s lies behind the block's %d entries", at, h.count)
	}
	first := max(index-1, 0)
	entries = entries[:entryBytes*(index-first+1)]
	if err := w.copy(s, entries, block+blockHeaderBytes+entryBytes*int64(first)); err != nil {
		return d, err
	}
	d.entry = parseEntry(entries, index)
	if err := d.check(&h); err != nil {
		return d, s.corruption(block, fmt.Errorf("entry %d: %w", index, err))
	}
	// The checksum covers place, id and document: they are put together.
	idEnd := placeBytes + int(d.idEnd-d.idStart)
	b := spare.sized(idEnd + d.storedBytes())
	putPlace(b, at, d.rawAndFlags)
	d.id, d.stored = b[placeBytes:idEnd], b[idEnd:]
	d.offset = block + h.dataOffset() + int64(d.start)
	if err := w.copy(s, d.id, block+h.idsOffset()+int64(d.idStart)); err != nil {
		return d, err
	}
	if err := w.copy(s, d.stored, d.offset); err != nil {
		return d, err
	}
	if got := checksum.Update(0, b); got != d.crc {
		return d, s.damagedDocument(&d, wrongChecksum(d.crc, got))
	}
	return d, nil
}

// fetch appends the document at the address to dst, which is in this segment.
// With an id it must be that one's.
//
// Where the document's codec is in take it is appended in its stored form, and
// that is reported. On any error dst is returned unchanged.
func (s *segmentFile) fetch(dst []byte, id []byte, at Address, decoders *DecoderCache, take CodecSet) (_ []byte, asStored bool, _ error) {
	ahead, spare := getScratch(), getScratch()
	defer ahead.release()
	defer spare.release()
	d, err := s.locate(ahead, spare, at)
	switch {
	case err != nil:
		return dst, false, err
	case id != nil && !bytes.Equal(id, d.id):
		return dst, false, ErrMismatch
	case d.deleted():
		return dst, false, ErrDeleted
	case d.lost():
		return dst, false, &LostError{Address: at}
	case take != 0 && (d.storedRaw() || take.has(s.header.codec)):
		return s.header.appendStored(dst, at, &d.entry, d.stored), true, nil
	case d.storedRaw():
		return append(dst, d.stored...), false, nil
	}
	dec, err := decoders.of(s)
	if err != nil {
		return dst, false, err
	}
	out, err := dec.decode(dst, d.stored, d.rawBytes())
	if err != nil {
		return dst, false, s.damagedDocument(&d, err)
	}
	return out, false, nil
}

func (s *segmentFile) damagedDocument(d *located, reason error) error {
	c := s.corruption(d.offset, reason)
	c.ID = string(d.id)
	return c
}
