package queue

import (
	"crypto/sha256"
	"errors"
	"fmt"
)

// totals count the content of a segment.
type totals struct {
	blocks    uint32
	lastBlock uint32 // offset of the last block; 0 is none
	entries   uint64
	documents uint64 // entries that are not deletes
	raw       uint64 // bytes of the documents as appended
	stored    uint64 // bytes of the documents as stored
	first     int64  // time of the first block's first entry, Unix milliseconds
	last      int64  // the same of the last block
}

// add counts the block at offset.
func (t *totals) add(offset int64, b *block) {
	if t.blocks == 0 {
		t.first = b.appended
	}
	t.blocks++
	t.lastBlock = uint32(offset)
	t.last = b.appended
	t.entries += uint64(b.count)
	for i := range b.count {
		e := b.entry(i)
		if !e.deleted() {
			t.documents++
		}
		t.raw += uint64(e.rawBytes())
		t.stored += uint64(e.storedBytes())
	}
}

// segmentFooter ends a sealed segment. It is also the commit mark of everything before
// it.
//
//	 0  crc u32         of all that follows
//	 4  type u8         3
//	 5  zero [3]
//	 8  offset u32      its own, so that it is valid only in its place
//	12  chain u32       checksum of the last block, or of the header if there is none
//	16  queue [16]
//	32  segment u32
//	36  blocks u32
//	40  last block u32  its offset; 0 if there is none
//	44  relocations u32 of a rewrite, the offset of its table; else 0
//	48  entries u64
//	56  documents u64   entries that are not deletes
//	64  raw bytes u64   of the documents as appended
//	72  stored bytes u64
//	80  first i64       when the first block's first entry was appended, Unix ms
//	88  last i64        the same of the last block
type segmentFooter struct {
	offset  uint32
	chain   uint32
	queue   [16]byte
	segment SegmentID
	// relocations is the offset of the end of a rewrite's frames; 0 in an original.
	relocations uint32
	totals
}

func (f *segmentFooter) append(dst []byte) []byte {
	var b [footerBytes]byte
	b[4] = byte(frameFooter)
	little.PutUint32(b[8:], f.offset)
	little.PutUint32(b[12:], f.chain)
	copy(b[16:], f.queue[:])
	little.PutUint32(b[32:], uint32(f.segment))
	little.PutUint32(b[36:], f.blocks)
	little.PutUint32(b[40:], f.lastBlock)
	little.PutUint32(b[44:], f.relocations)
	little.PutUint64(b[48:], f.entries)
	little.PutUint64(b[56:], f.documents)
	little.PutUint64(b[64:], f.raw)
	little.PutUint64(b[72:], f.stored)
	little.PutUint64(b[80:], uint64(f.first))
	little.PutUint64(b[88:], uint64(f.last))
	sealFrame(b[:])
	return append(dst, b[:]...)
}

// digest is the digest of this footer in the header of the next segment.
func (f *segmentFooter) digest() digest {
	return sha256.Sum256(f.append(nil))
}

// parseFooter parses the footer in b, which was found at offset.
func parseFooter(b []byte, offset int64) (segmentFooter, error) {
	var f segmentFooter
	switch {
	case len(b) != footerBytes || frameType(b[4]) != frameFooter:
		return f, errors.New("no footer")
	case !frameIntact(b):
		return f, errors.New("footer has a wrong checksum")
	case !allZero(b[5:8]):
		return f, errors.New("reserved bytes of the footer are not zero")
	}
	f.offset = little.Uint32(b[8:])
	if int64(f.offset) != offset {
		return f, fmt.Errorf("footer is at offset %d, was written for %d", offset, f.offset)
	}
	f.chain = little.Uint32(b[12:])
	f.queue = [16]byte(b[16:])
	f.segment = SegmentID(little.Uint32(b[32:]))
	f.blocks = little.Uint32(b[36:])
	f.lastBlock = little.Uint32(b[40:])
	f.relocations = little.Uint32(b[44:])
	f.entries = little.Uint64(b[48:])
	f.documents = little.Uint64(b[56:])
	f.raw = little.Uint64(b[64:])
	f.stored = little.Uint64(b[72:])
	f.first = int64(little.Uint64(b[80:]))
	f.last = int64(little.Uint64(b[88:]))
	return f, nil
}

// commitMark states that everything before it was durable at the source.
//
//	 0  crc u32      of all that follows
//	 4  type u8      2
//	 5  zero [3]
//	 8  offset u32   its own, so that it is valid only in its place
//	12  chain u32    checksum of the last block
type commitMark struct {
	offset uint32
	chain  uint32
}

func (m commitMark) append(dst []byte) []byte {
	var b [markBytes]byte
	b[4] = byte(frameMark)
	little.PutUint32(b[8:], m.offset)
	little.PutUint32(b[12:], m.chain)
	sealFrame(b[:])
	return append(dst, b[:]...)
}

// checkMark verifies the mark in b, which was found at offset.
func checkMark(b []byte, offset int64) error {
	switch {
	case len(b) != markBytes || frameType(b[4]) != frameMark:
		return errors.New("no commit mark")
	case !frameIntact(b):
		return errors.New("commit mark's checksum is wrong")
	case !allZero(b[5:8]):
		return errors.New("reserved bytes of the commit mark are not zero")
	case int64(little.Uint32(b[8:])) != offset:
		return fmt.Errorf("commit mark is at offset %d, was written for %d", offset, little.Uint32(b[8:]))
	}
	return nil
}

// limit is the end of the segment's frames.
func (f *segmentFooter) limit() int64 {
	if f.relocations > 0 {
		return int64(f.relocations)
	}
	return int64(f.offset)
}
