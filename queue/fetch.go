package queue

import (
	"bytes"
	"fmt"
	"io"

	"github.com/cockroachdb/errors"
)

// verifyDocument checks what is stored of a document against its entry.
func verifyDocument(at Address, e *entry, id, stored []byte) error {
	if got := documentCRC(at, e.rawAndFlags, id, stored); got != e.crc {
		return fmt.Errorf("document's checksum is %08x, its bytes have %08x", e.crc, got)
	}
	return nil
}

// windowBytes is how much of a block is read at once, in the hope that the
// entry and, in a small block, the id and document lie in it.
const windowBytes = 4 << 10

// window is a part of a file that was read ahead.
type window struct {
	file   *segmentFile
	offset int64
	bytes  []byte
}

// read returns n bytes from offset, from the window if they lie there and into
// memory of spare otherwise.
func (w *window) read(spare *scratch, offset int64, n int) ([]byte, error) {
	from := offset - w.offset
	if from >= 0 && from+int64(n) <= int64(len(w.bytes)) {
		return w.bytes[from:][:n], nil
	}
	b := spare.sized(n)
	return b, w.file.readAt(b, offset)
}

// fetch appends the document at the address to dst, which is in this segment.
// With an id it must be that one's. It takes at most five reads, however large
// the segment and block are, and trusts nothing: the document's checksum covers
// its address, id and length.
//
// Where the document's codec is in take it is appended in its stored form, and
// that is reported. On any error dst is returned unchanged.
func (s *segmentFile) fetch(dst []byte, id []byte, at Address, dec decoder, take CodecSet) (_ []byte, asStored bool, _ error) {
	ahead, entrySpare, idSpare, documentSpare := getScratch(), getScratch(), getScratch(), getScratch()
	defer ahead.release()
	defer entrySpare.release()
	defer idSpare.release()
	defer documentSpare.release()

	block := int64(at.Block)
	if block < s.header.firstFrame() {
		return dst, false, errors.Newf("queue: address %s lies in the segment's header", at)
	}
	w := window{file: s, offset: block, bytes: ahead.sized(windowBytes)}
	n, err := s.file.ReadAt(w.bytes, block)
	if err != nil && !errors.Is(err, io.EOF) {
		return dst, false, errors.Wrapf(err, "queue: reading segment %d", s.number)
	}
	if n < blockHeaderBytes {
		return dst, false, errIncomplete
	}
	w.bytes = w.bytes[:n]

	h, err := parseBlockHeader(w.bytes[:blockHeaderBytes])
	if err != nil {
		return dst, false, s.corruption(block, err)
	}
	index := int(at.Index)
	if index >= h.count {
		return dst, false, errors.Newf("queue: address %s lies behind the block's %d entries", at, h.count)
	}
	first := max(index-1, 0)
	b, err := w.read(entrySpare, block+blockHeaderBytes+entryBytes*int64(first), entryBytes*(index-first+1))
	if err != nil {
		return dst, false, err
	}
	e := parseEntry(b, index)
	if err := e.check(&h); err != nil {
		return dst, false, s.corruption(block, fmt.Errorf("entry %d: %w", index, err))
	}
	found, err := w.read(idSpare, block+h.idsOffset()+int64(e.idStart), int(e.idEnd-e.idStart))
	if err != nil {
		return dst, false, err
	}
	stored, err := w.read(documentSpare, block+h.dataOffset()+int64(e.start), e.storedBytes())
	if err != nil {
		return dst, false, err
	}
	if err := verifyDocument(at, &e, found, stored); err != nil {
		return dst, false, s.damagedDocument(at, &h, &e, found, err)
	}
	switch {
	case id != nil && !bytes.Equal(id, found):
		return dst, false, ErrMismatch
	case e.deleted():
		return dst, false, ErrDeleted
	case take != 0 && (e.storedRaw() || take.has(s.header.codec)):
		return s.header.appendStored(dst, at, &e, stored), true, nil
	case e.storedRaw():
		return append(dst, stored...), false, nil
	case dec == nil:
		_, err := codecByID(s.header.codec)
		return dst, false, err
	}
	out, err := dec.decode(dst, stored, e.rawBytes())
	if err != nil {
		return dst, false, s.damagedDocument(at, &h, &e, found, err)
	}
	return out, false, nil
}

func (s *segmentFile) damagedDocument(at Address, h *blockHeader, e *entry, id []byte, reason error) error {
	c := s.corruption(int64(at.Block)+h.dataOffset()+int64(e.start), reason)
	c.ID = string(id)
	return c
}
