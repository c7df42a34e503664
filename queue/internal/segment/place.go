package segment

import (
	"docstore/queue/stored"
)

// Place is where a document was found: see package queue.
//
// Little-endian:
//
//	 0  crc u32  of the document, as in the block's table
//	 4  u64      bits  0 to 24: bytes as stored
//	             bits 25 to 49: bytes before compression
//	             bit  50:       stored raw
//	             bits 51 to 53: file: 0 the original, 1 to 7 a rewrite, by its generation
//	             bits 54 to 63: high bits of the offset
//	12  u16      low bits of the offset: of the document, from the start of its block
type Place [14]byte

const (
	placeRawShift    = 25
	placeStoredRaw   = 1 << 50
	placeFileShift   = 51
	placeFiles       = 7
	placeOffsetShift = 54
)

// PlaceOf returns the place of an entry's document, which is zero if there is none.
func (b *Block) PlaceOf(e *Entry, file uint64) (p Place) {
	if e.Deleted() || e.Lost() {
		return p
	}
	offset := uint64(b.DataOffset()) + uint64(e.Start)
	packed := uint64(e.StoredBytes()) | uint64(e.RawBytes())<<placeRawShift | file<<placeFileShift | offset>>16<<placeOffsetShift
	if e.StoredRaw() {
		packed |= placeStoredRaw
	}
	Little.PutUint32(p[0:], e.CRC)
	Little.PutUint64(p[4:], packed)
	Little.PutUint16(p[12:], uint16(offset))
	return p
}

// PlaceFile tells the files of a segment apart. Two rewrites may have the same number, and
// different dictionaries; the checksum of the document decides. It covers the address and the
// id, so bytes that match are those of the document's entry in the present file, which its
// dictionary decodes.
func (h *Header) PlaceFile() uint64 {
	if h.Rewrites.Generation == 0 {
		return 0
	}
	return uint64(1 + (h.Rewrites.Generation-1)%placeFiles)
}

// Checksum returns the checksum of the document.
func (p *Place) Checksum() uint32 { return Little.Uint32(p[0:]) }

// Mask returns the place with the exclusive or of its checksum and mask as the checksum, so that
// p.Mask(m).Mask(m) is p. The zero place, and a checksum without a document, which is no place, stay
// as they are.
func (p Place) Mask(mask uint32) Place {
	if [len(p) - 4]byte(p[4:]) != ([len(p) - 4]byte{}) {
		Little.PutUint32(p[0:], p.Checksum()^mask)
	}
	return p
}

// StoredBytes returns the length of the document as stored.
func (p *Place) StoredBytes() int { return int(Little.Uint32(p[4:]) & rawBytesMask) }

// RawBytes returns the length of the decoded document.
func (p *Place) RawBytes() int { return int(Little.Uint64(p[4:]) >> placeRawShift & rawBytesMask) }

// Matches reports whether a stored form has the checksum in a Place. An equal document that was
// encoded again does not, nor does another one at the same address in another history of the
// queue.
func (p *Place) Matches(f *stored.Form) bool {
	return *p != (Place{}) && f.DocumentChecksum() == p.Checksum()
}

// Location returns the location of the document with the address and the id in a file. False:
// it is unknown.
func (p *Place) Location(s *File, at Address, id []byte) (l Location, ok bool) {
	if *p == (Place{}) || len(id) == 0 {
		return l, false
	}
	packed := Little.Uint64(p[4:])
	l.Entry = Entry{
		IdEnd: uint32(len(id)), End: uint32(packed & rawBytesMask),
		RawAndFlags: uint32(packed >> placeRawShift & rawBytesMask), CRC: p.Checksum(),
	}
	if packed&placeStoredRaw != 0 {
		l.RawAndFlags |= FlagStoredRaw
	}
	if packed>>placeFileShift&placeFiles != s.Header.PlaceFile() || l.checkLengths() != nil {
		return l, false
	}
	block, err := s.Find(at)
	l.Block, l.Data = block, block+int64(packed>>placeOffsetShift<<16|uint64(Little.Uint16(p[12:])))
	return l, err == nil
}
