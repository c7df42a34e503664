package queue

import (
	"encoding/binary"

	"docstore/internal/checksum"
	"docstore/queue/stored"
)

// formatVersion is the version of segments that this package writes, and the only one
// that it reads.
const formatVersion = 0

// Sizes of the fixed parts of a segment, in bytes.
const (
	headerBytes      = 128 // the segment's header, without the dictionary
	blockHeaderBytes = 32
	entryBytes       = 16 // an entry in a block's table
	expiryBytes      = 4  // more per entry if any entry of the block expires
	markBytes        = 16
	footerBytes      = 96
	frameHeadBytes   = blockHeaderBytes // contains the size of any frame
)

// frameType is the type byte of a frame.
type frameType uint8

const (
	frameNone   frameType = 0 // never written
	frameBlock  frameType = 1
	frameMark   frameType = 2
	frameFooter frameType = 3
	// frameRelocations precedes the footer of a rewrite.
	frameRelocations frameType = 4
)

// maxBlockFileBytes bounds the size of a block in the file: the maximum number of the
// smallest entries, or one of the largest.
const maxBlockFileBytes = blockHeaderBytes + MaxBlockEntries*(entryBytes+expiryBytes) +
	MaxBlockBytes + MaxIDBytes + MaxCursorBytes + MaxDocumentBytes

// maxRelocatedBytes bounds the size of a relocated block with its row in the relocations.
const maxRelocatedBytes = maxBlockFileBytes + originBytes + relocationBytes + MaxBlockEntries*originalIndexBytes

// rewriteReserveBytes is the part of a rewrite's maximum size for everything except blocks
// and their rows: header, dictionary, cursor, footer, and thousands of lost or truncated
// ranges.
const rewriteReserveBytes = 1 << 20

var little = binary.LittleEndian

// sealFrame writes the checksum of a frame into its first four bytes. It covers all bytes
// after them.
func sealFrame(frame []byte) {
	little.PutUint32(frame, checksum.Update(0, frame[4:]))
}

// frameIntact verifies the checksum of a frame.
func frameIntact(frame []byte) bool {
	return little.Uint32(frame) == checksum.Update(0, frame[4:])
}

// allZero reports whether every byte of b is zero.
func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// Bits of an entry's third word: the length of the uncompressed document and its flags.
// The remaining bits are zero.
const (
	rawBytesMask   = stored.RawBytesMask
	flagDeleted    = 1 << 31        // a delete: no document
	flagStoredRaw  = stored.FlagRaw // the document is stored uncompressed
	flagLost       = 1 << 29        // the document was lost to damage; only in a rewrite
	entryFlagsMask = flagDeleted | flagStoredRaw | flagLost
)

// blockHasExpiries is the flag of a block with a column of expiry times after the
// entries.
const blockHasExpiries = 1 << 0

// blockRelocated is the flag of a block in a rewrite: its origin and a column of original
// indexes follow the expiry times.
const blockRelocated = 1 << 1

// Sizes of the additional fields of a relocated block.
const (
	originBytes        = 16
	originalIndexBytes = 2
)

// placeBytes is the size of the place, which a document's checksum covers before its id.
const placeBytes = 14

// putPlace writes the place of a document to the beginning of b: its address, length and
// flags.
func putPlace(b []byte, a Address, rawAndFlags uint32) {
	little.PutUint32(b[0:], uint32(a.Segment))
	little.PutUint32(b[4:], a.Block)
	little.PutUint16(b[8:], a.Index)
	little.PutUint32(b[10:], rawAndFlags)
}

// documentCRC returns the checksum of a document. It covers the permanent address, length
// and flags, the id and the stored bytes, so a document that passes is the right one,
// unchanged.
func documentCRC(a Address, rawAndFlags uint32, id, stored []byte) uint32 {
	s := getScratch() // a local array would escape: crc32 calls through a function variable
	defer s.release()
	return sumDocument(s.sized(placeBytes+len(id)), a, rawAndFlags, id, stored)
}

// sumDocument is documentCRC with memory for the place and id. Checksumming them in one
// piece is faster than in two.
func sumDocument(room []byte, a Address, rawAndFlags uint32, id, stored []byte) uint32 {
	putPlace(room, a, rawAndFlags)
	n := placeBytes + copy(room[placeBytes:], id)
	return checksum.Update(checksum.Update(0, room[:n]), stored)
}
