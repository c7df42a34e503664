package segment

import (
	"crypto/sha256"
	"errors"
	"fmt"
)

// Totals count the content of a segment.
type Totals struct {
	Blocks    uint32
	LastBlock uint32 // offset of the last block; 0 is none
	Entries   uint64
	Documents uint64 // entries that are not deletes
	Raw       uint64 // bytes of the documents as appended
	Stored    uint64 // bytes of the documents as stored
	First     int64  // time of the first block's first entry, Unix milliseconds
	Last      int64  // the same of the last block
}

// Add counts the block at offset.
func (t *Totals) Add(offset int64, b *Block) {
	if t.Blocks == 0 {
		t.First = b.Appended
	}
	t.Blocks++
	t.LastBlock = uint32(offset)
	t.Last = b.Appended
	t.Entries += uint64(b.Count)
	for i := range b.Count {
		e := b.Entry(i)
		if !e.Deleted() {
			t.Documents++
		}
		t.Raw += uint64(e.RawBytes())
		t.Stored += uint64(e.StoredBytes())
	}
}

// Footer ends a sealed segment. It is also the commit mark of everything before
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
type Footer struct {
	Offset  uint32
	Chain   uint32
	Queue   [16]byte
	Segment ID
	// Relocations is the offset of the end of a rewrite's frames; 0 in an original.
	Relocations uint32
	Totals
}

func (f *Footer) append(dst []byte) []byte {
	var b [FooterBytes]byte
	b[4] = byte(FrameFooter)
	Little.PutUint32(b[8:], f.Offset)
	Little.PutUint32(b[12:], f.Chain)
	copy(b[16:], f.Queue[:])
	Little.PutUint32(b[32:], uint32(f.Segment))
	Little.PutUint32(b[36:], f.Blocks)
	Little.PutUint32(b[40:], f.LastBlock)
	Little.PutUint32(b[44:], f.Relocations)
	Little.PutUint64(b[48:], f.Entries)
	Little.PutUint64(b[56:], f.Documents)
	Little.PutUint64(b[64:], f.Raw)
	Little.PutUint64(b[72:], f.Stored)
	Little.PutUint64(b[80:], uint64(f.First))
	Little.PutUint64(b[88:], uint64(f.Last))
	sealFrame(b[:])
	return append(dst, b[:]...)
}

// Digest is the digest of this footer in the header of the next segment.
func (f *Footer) Digest() Digest {
	return sha256.Sum256(f.append(nil))
}

// ParseFooter parses the footer in b, which was found at offset.
func ParseFooter(b []byte, offset int64) (Footer, error) {
	var f Footer
	switch {
	case len(b) != FooterBytes || FrameType(b[4]) != FrameFooter:
		return f, errors.New("no footer")
	case !frameIntact(b):
		return f, errors.New("footer has a wrong checksum")
	case !allZero(b[5:8]):
		return f, errors.New("reserved bytes of the footer are not zero")
	}
	f.Offset = Little.Uint32(b[8:])
	if int64(f.Offset) != offset {
		return f, fmt.Errorf("footer is at offset %d, was written for %d", offset, f.Offset)
	}
	f.Chain = Little.Uint32(b[12:])
	f.Queue = [16]byte(b[16:])
	f.Segment = ID(Little.Uint32(b[32:]))
	f.Blocks = Little.Uint32(b[36:])
	f.LastBlock = Little.Uint32(b[40:])
	f.Relocations = Little.Uint32(b[44:])
	f.Entries = Little.Uint64(b[48:])
	f.Documents = Little.Uint64(b[56:])
	f.Raw = Little.Uint64(b[64:])
	f.Stored = Little.Uint64(b[72:])
	f.First = int64(Little.Uint64(b[80:]))
	f.Last = int64(Little.Uint64(b[88:]))
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
	var b [MarkBytes]byte
	b[4] = byte(FrameMark)
	Little.PutUint32(b[8:], m.offset)
	Little.PutUint32(b[12:], m.chain)
	sealFrame(b[:])
	return append(dst, b[:]...)
}

// CheckMark verifies the mark in b, which was found at offset.
func CheckMark(b []byte, offset int64) error {
	switch {
	case len(b) != MarkBytes || FrameType(b[4]) != FrameMark:
		return errors.New("no commit mark")
	case !frameIntact(b):
		return errors.New("commit mark's checksum is wrong")
	case !allZero(b[5:8]):
		return errors.New("reserved bytes of the commit mark are not zero")
	case int64(Little.Uint32(b[8:])) != offset:
		return fmt.Errorf("commit mark is at offset %d, was written for %d", offset, Little.Uint32(b[8:]))
	}
	return nil
}

// Limit is the end of the segment's frames.
func (f *Footer) Limit() int64 {
	if f.Relocations > 0 {
		return int64(f.Relocations)
	}
	return int64(f.Offset)
}
