package queue

import (
	"encoding/binary"

	"docstore/internal/checksum"
)

// formatVersion is the version of the segments this package writes. It reads
// this version and no other.
const formatVersion = 0

// Sizes of the fixed parts of a segment, in bytes.
const (
	headerBytes      = 128 // the segment's header, without the dictionary
	blockHeaderBytes = 32
	entryBytes       = 16 // an entry of a block's table
	expiryBytes      = 4  // more of them in a block where anything expires
	markBytes        = 16
	footerBytes      = 96
	frameHeadBytes   = blockHeaderBytes // enough of any frame to know its size
)

// frameType is the byte that says what a frame is.
type frameType uint8

const (
	frameNone   frameType = 0 // never written
	frameBlock  frameType = 1
	frameMark   frameType = 2
	frameFooter frameType = 3
	// frameRelocations stands before the footer of a rewrite.
	frameRelocations frameType = 4
)

// maxBlockFileBytes bounds a block in the file: as many of the smallest
// entries as fit, or one of the largest.
const maxBlockFileBytes = blockHeaderBytes + MaxBlockEntries*(entryBytes+expiryBytes) +
	MaxBlockBytes + MaxIDBytes + MaxCursorBytes + MaxDocumentBytes

var little = binary.LittleEndian

// sealFrame writes the checksum of everything behind the first four bytes of
// frame into those four.
func sealFrame(frame []byte) {
	little.PutUint32(frame, checksum.Update(0, frame[4:]))
}

// frameIntact tells whether the checksum in the first four bytes of frame is
// that of the rest.
func frameIntact(frame []byte) bool {
	return little.Uint32(frame) == checksum.Update(0, frame[4:])
}

// allZero tells whether b holds nothing but zeros.
func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// Bits of an entry's third word: the document's length before compression,
// and what became of it. The bits between are zero.
const (
	rawBytesMask   = 1<<25 - 1
	flagDeleted    = 1 << 31 // a delete: no document
	flagStoredRaw  = 1 << 30 // the document lies there as it was appended
	flagLost       = 1 << 29 // the document was lost to damage; only in a rewrite
	entryFlagsMask = flagDeleted | flagStoredRaw | flagLost
)

// blockHasExpiries is the bit of a block's flags that says a column of expiry
// times stands behind the entries.
const blockHasExpiries = 1 << 0

// blockRelocated is the bit of a block's flags that says it stands in a rewrite:
// its origin and a column of original indexes stand behind the expiry times.
const blockRelocated = 1 << 1

// Sizes of what a relocated block has more.
const (
	originBytes        = 16
	originalIndexBytes = 2
)

// placeBytes is the size of what a document's checksum covers before its id.
const placeBytes = 14

// putPlace writes a document's address, length and flags to the beginning of b,
// in the form in which its checksum covers them.
func putPlace(b []byte, a Address, rawAndFlags uint32) {
	little.PutUint32(b[0:], uint32(a.Segment))
	little.PutUint32(b[4:], a.Block)
	little.PutUint16(b[8:], a.Index)
	little.PutUint32(b[10:], rawAndFlags)
}

// documentCRC is the checksum of a document: of its permanent address, its
// length and flags, its id and its stored bytes. What is fetched with it is the
// right document, whole, at its own place.
func documentCRC(a Address, rawAndFlags uint32, id, stored []byte) uint32 {
	s := getScratch() // an array of its own would escape: crc32 sums through a function variable
	defer s.release()
	return sumDocument(s.sized(placeBytes+len(id)), a, rawAndFlags, id, stored)
}

// sumDocument is documentCRC for who has room for place and id: one piece takes less
// time to sum than two.
func sumDocument(room []byte, a Address, rawAndFlags uint32, id, stored []byte) uint32 {
	putPlace(room, a, rawAndFlags)
	n := placeBytes + copy(room[placeBytes:], id)
	return checksum.Update(checksum.Update(0, room[:n]), stored)
}
