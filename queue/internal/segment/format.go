package segment

import (
	"encoding/binary"

	"docstore/internal/checksum"
	"docstore/queue/codec"
	"docstore/queue/stored"
)

// formatVersion is the version of segments that this package writes, and the only one
// that it reads.
const formatVersion = 0

// ID is the number of a segment.
type ID = stored.SegmentID

// Address is the permanent address of an entry.
type Address = stored.Address

// Limits. Each is checked before a write and after a read.
const (
	MaxIDBytes       = stored.MaxIDBytes      // 1 KiB: an id
	MaxDocumentBytes = codec.MaxDocumentBytes // 16 MiB: a document
	MaxBlockBytes    = 1 << 20                // ids and documents of a block with more than one entry
	MaxBlockEntries  = 1<<16 - 1              // entries of a block
	MaxCursorBytes   = 4 << 10                // a cursor
	MaxSegmentBytes  = 4 << 30                // a segment file; every offset in it fits in 32 bits
)

// Sizes of the fixed parts of a segment, in bytes.
const (
	HeaderBytes      = 128 // the segment's header, without the dictionary
	BlockHeaderBytes = 32
	EntryBytes       = 16 // an entry in a block's table
	ExpiryBytes      = 4  // more per entry if any entry of the block expires
	MarkBytes        = 16
	FooterBytes      = 96
	frameHeadBytes   = BlockHeaderBytes // contains the size of any frame
)

// FrameType is the type byte of a frame.
type FrameType uint8

// Kinds of frames.
const (
	frameNone   FrameType = 0 // never written
	FrameBlock  FrameType = 1 // a block: see Block
	FrameMark   FrameType = 2 // a commit mark
	FrameFooter FrameType = 3 // the last frame of a sealed segment
	// FrameRelocations precedes the footer of a rewrite.
	FrameRelocations FrameType = 4
)

// MaxBlockFileBytes bounds the size of a block in the file: the maximum number of the
// smallest entries, or one of the largest.
const MaxBlockFileBytes = BlockHeaderBytes + MaxBlockEntries*(EntryBytes+ExpiryBytes) +
	MaxBlockBytes + MaxIDBytes + MaxCursorBytes + MaxDocumentBytes

// MaxRelocatedBytes bounds the size of a relocated block with its row in the relocations.
const MaxRelocatedBytes = MaxBlockFileBytes + OriginBytes + relocationBytes + MaxBlockEntries*OriginalIndexBytes

// RewriteReserveBytes is the part of a rewrite's maximum size for everything except blocks
// and their rows: header, dictionary, cursor, footer, and thousands of lost or truncated
// ranges.
const RewriteReserveBytes = 1 << 20

// Little is the byte order of all numbers.
var Little = binary.LittleEndian

// sealFrame writes the checksum of a frame into its first four bytes. It covers all bytes
// after them.
func sealFrame(frame []byte) {
	Little.PutUint32(frame, checksum.Update(0, frame[4:]))
}

// frameIntact verifies the checksum of a frame.
func frameIntact(frame []byte) bool {
	return Little.Uint32(frame) == checksum.Update(0, frame[4:])
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
	FlagDeleted    = 1 << 31        // a delete: no document
	FlagStoredRaw  = stored.FlagRaw // the document is stored uncompressed
	FlagLost       = 1 << 29        // the document was lost to damage; only in a rewrite
	entryFlagsMask = FlagDeleted | FlagStoredRaw | FlagLost
)

// BlockHasExpiries is the flag of a block with a column of expiry times after the
// entries.
const BlockHasExpiries = 1 << 0

// blockRelocated is the flag of a block in a rewrite: its origin and a column of original
// indexes follow the expiry times.
const blockRelocated = 1 << 1

// Sizes of the additional fields of a relocated block.
const (
	OriginBytes        = 16
	OriginalIndexBytes = 2
)

// placeBytes is the size of the place, which a document's checksum covers before its id.
const placeBytes = 14

// putPlace writes the place of a document to the beginning of b: its address, length and
// flags.
func putPlace(b []byte, a Address, rawAndFlags uint32) {
	Little.PutUint32(b[0:], uint32(a.Segment))
	Little.PutUint32(b[4:], a.Block)
	Little.PutUint16(b[8:], a.Index)
	Little.PutUint32(b[10:], rawAndFlags)
}

// DocumentCRC returns the checksum of a document. It covers the permanent address, length
// and flags, the id and the stored bytes, so a document that passes is the right one,
// unchanged.
func DocumentCRC(a Address, rawAndFlags uint32, id, stored []byte) uint32 {
	s := GetScratch() // a local array would escape: crc32 calls through a function variable
	defer s.Release()
	return sumDocument(s.Sized(placeBytes+len(id)), a, rawAndFlags, id, stored)
}

// sumDocument is DocumentCRC with memory for the place and id. Checksumming them in one
// piece is faster than in two.
func sumDocument(room []byte, a Address, rawAndFlags uint32, id, stored []byte) uint32 {
	putPlace(room, a, rawAndFlags)
	n := placeBytes + copy(room[placeBytes:], id)
	return checksum.Update(checksum.Update(0, room[:n]), stored)
}
