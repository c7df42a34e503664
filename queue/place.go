package queue

import "docstore/queue/stored"

// Place is where Tail has found a document, with its lengths and its checksum. With it a
// fetch reads only the document: the block's table, which has the same, lies mostly on
// another page. A Place is a hint. Compaction changes the places of documents, and the
// holder may have stored it in a file that is damaged. The checksum covers the address, the
// id and the document, so a wrong Place is detected, and the table is read. The zero Place is
// unknown.
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
type Place [PlaceBytes]byte

// PlaceBytes is the length of a Place.
const PlaceBytes = 14

const (
	placeRawShift    = 25
	placeStoredRaw   = 1 << 50
	placeFileShift   = 51
	placeFiles       = 7
	placeOffsetShift = 54
)

// placeOf returns the place of an entry's document, which is zero if there is none.
func (b *block) placeOf(e *entry, file uint64) (p Place) {
	if e.deleted() || e.lost() {
		return p
	}
	offset := uint64(b.dataOffset()) + uint64(e.start)
	packed := uint64(e.storedBytes()) | uint64(e.rawBytes())<<placeRawShift | file<<placeFileShift | offset>>16<<placeOffsetShift
	if e.storedRaw() {
		packed |= placeStoredRaw
	}
	little.PutUint32(p[0:], e.crc)
	little.PutUint64(p[4:], packed)
	little.PutUint16(p[12:], uint16(offset))
	return p
}

// placeFile tells the files of a segment apart. Two rewrites may have the same number, and
// different dictionaries; the checksum of the document decides. It covers the address and the
// id, so bytes that match are those of the document's entry in the present file, which its
// dictionary decodes.
func (h *segmentHeader) placeFile() uint64 {
	if h.rewrites.generation == 0 {
		return 0
	}
	return uint64(1 + (h.rewrites.generation-1)%placeFiles)
}

// StoredBytes returns the length of the document as stored.
func (p *Place) StoredBytes() int { return int(little.Uint32(p[4:]) & rawBytesMask) }

// RawBytes returns the length of the decoded document.
func (p *Place) RawBytes() int { return int(little.Uint64(p[4:]) >> placeRawShift & rawBytesMask) }

// Matches reports whether a stored form has the checksum in a Place. An equal document that was
// encoded again does not, nor does another one at the same address in another history of the
// queue.
func (p *Place) Matches(f *stored.Form) bool {
	return *p != (Place{}) && f.DocumentChecksum() == little.Uint32(p[0:])
}

// location returns the location of the document with the address and the id in a file. False:
// it is unknown.
func (p *Place) location(s *segmentFile, at Address, id []byte) (l location, ok bool) {
	if *p == (Place{}) || len(id) == 0 {
		return l, false
	}
	packed := little.Uint64(p[4:])
	l.entry = entry{
		idEnd: uint32(len(id)), end: uint32(packed & rawBytesMask),
		rawAndFlags: uint32(packed >> placeRawShift & rawBytesMask), crc: little.Uint32(p[0:]),
	}
	if packed&placeStoredRaw != 0 {
		l.rawAndFlags |= flagStoredRaw
	}
	if packed>>placeFileShift&placeFiles != s.header.placeFile() || l.checkLengths() != nil {
		return l, false
	}
	block, err := s.find(at)
	l.block, l.data = block, block+int64(packed>>placeOffsetShift<<16|uint64(little.Uint16(p[12:])))
	return l, err == nil
}
