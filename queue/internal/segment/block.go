package segment

import (
	"errors"
	"fmt"
	"time"

	"docstore/internal/checksum"
)

// BlockHeader begins a block. The table follows it, then the documents.
//
//	 0  crc u32          of all that follows, to the end of the table
//	 4  type u8          1
//	 5  flags u8         bit 0: the table has a column of expiry times; bit 1: the
//	                    block is relocated
//	 6  count u16        entries, at least 1
//	 8  table bytes u32
//	12  data bytes u32   of the documents as stored
//	16  previous u32     checksum of the previous block; of the header in the first
//	20  appended i64     when the first entry was appended, Unix milliseconds
//	28  cursor bytes u16
//	30  zero [2]
//
// The table:
//
//	count x { document end u32, id end u32, raw bytes and flags u32, crc u32 }
//	count x   expiry u32, Unix seconds, 0 is never; only with flag bit 0
//	          segment u32, block u32, end u32, crc u32: the origin; only with flag
//	          bit 1; crc is the original block's, 0 if it is unknown
//	count x   index u16, in the original block; only with flag bit 1
//	          the ids
//	          the cursor
//
// Ends count from the start of the data and from the start of the ids. So an entry and
// its predecessor give the location of its id and document.
type BlockHeader struct {
	CRC            uint32
	Expiries       bool
	RelocatedBlock bool
	Count          int
	tableBytes     uint32
	DataBytes      uint32
	Previous       uint32
	Appended       int64
	cursorBytes    int
}

// OriginOffset is the offset in the block of the end of the entries and expiry times.
func (h *BlockHeader) OriginOffset() int64 {
	width := int64(EntryBytes)
	if h.Expiries {
		width += ExpiryBytes
	}
	return BlockHeaderBytes + width*int64(h.Count)
}

// IdsOffset is the offset in the block of the ids.
func (h *BlockHeader) IdsOffset() int64 {
	offset := h.OriginOffset()
	if h.RelocatedBlock {
		offset += OriginBytes + OriginalIndexBytes*int64(h.Count)
	}
	return offset
}

// idBytes is the length of all ids.
func (h *BlockHeader) idBytes() int64 {
	return h.DataOffset() - h.IdsOffset() - int64(h.cursorBytes)
}

// DataOffset is the offset in the block of the documents.
func (h *BlockHeader) DataOffset() int64 { return BlockHeaderBytes + int64(h.tableBytes) }

// Size is the length of the block in the file.
func (h *BlockHeader) Size() int64 { return h.DataOffset() + int64(h.DataBytes) }

func (h *BlockHeader) put(b []byte) {
	b[4] = byte(FrameBlock)
	b[5] = 0
	if h.Expiries {
		b[5] |= BlockHasExpiries
	}
	if h.RelocatedBlock {
		b[5] |= blockRelocated
	}
	Little.PutUint16(b[6:], uint16(h.Count))
	Little.PutUint32(b[8:], h.tableBytes)
	Little.PutUint32(b[12:], h.DataBytes)
	Little.PutUint32(b[16:], h.Previous)
	Little.PutUint64(b[20:], uint64(h.Appended))
	Little.PutUint16(b[28:], uint16(h.cursorBytes))
	Little.PutUint16(b[30:], 0)
}

// ParseBlockHeader parses the header in b, which has BlockHeaderBytes bytes. It checks
// everything that does not need the table: the lengths against each other and the limits.
func ParseBlockHeader(b []byte) (BlockHeader, error) {
	var h BlockHeader
	if FrameType(b[4]) != FrameBlock {
		return h, fmt.Errorf("frame has type %d, want a block", b[4])
	}
	h.CRC = Little.Uint32(b)
	h.Expiries = b[5]&BlockHasExpiries != 0
	h.RelocatedBlock = b[5]&blockRelocated != 0
	h.Count = int(Little.Uint16(b[6:]))
	h.tableBytes = Little.Uint32(b[8:])
	h.DataBytes = Little.Uint32(b[12:])
	h.Previous = Little.Uint32(b[16:])
	h.Appended = int64(Little.Uint64(b[20:]))
	h.cursorBytes = int(Little.Uint16(b[28:]))
	switch {
	case b[5]&^(BlockHasExpiries|blockRelocated) != 0 || b[30] != 0 || b[31] != 0:
		return h, errors.New("reserved bits of the block's header are not zero")
	case h.Count == 0:
		return h, errors.New("block has no entries")
	case h.cursorBytes > MaxCursorBytes:
		return h, fmt.Errorf("cursor has %d bytes, more than %d", h.cursorBytes, MaxCursorBytes)
	case h.idBytes() < int64(h.Count) || h.idBytes() > MaxBlockBytes+MaxIDBytes:
		return h, fmt.Errorf("table of %d entries has %d bytes", h.Count, h.tableBytes)
	case int64(h.DataBytes) > max(MaxBlockBytes, MaxDocumentBytes):
		return h, fmt.Errorf("block has %d bytes of documents", h.DataBytes)
	}
	return h, nil
}

// Entry is an entry of a block's table.
type Entry struct {
	IdStart, IdEnd   uint32 // in the ids
	Start, End       uint32 // in the data
	RawAndFlags, CRC uint32
}

// ParseEntry reads entry i from b, which holds the entry and, unless i is 0,
// the one before it.
func ParseEntry(b []byte, i int) Entry {
	var e Entry
	if i > 0 {
		e.Start = Little.Uint32(b[0:])
		e.IdStart = Little.Uint32(b[4:])
		b = b[EntryBytes:]
	}
	e.End = Little.Uint32(b[0:])
	e.IdEnd = Little.Uint32(b[4:])
	e.RawAndFlags = Little.Uint32(b[8:])
	e.CRC = Little.Uint32(b[12:])
	return e
}

// Deleted reports whether the entry is a delete.
func (e *Entry) Deleted() bool { return e.RawAndFlags&FlagDeleted != 0 }

// StoredRaw reports whether the document is stored uncompressed.
func (e *Entry) StoredRaw() bool { return e.RawAndFlags&FlagStoredRaw != 0 }

// Lost reports whether a repair has recorded the document as lost.
func (e *Entry) Lost() bool { return e.RawAndFlags&FlagLost != 0 }

// HasCoded reports whether the entry has a compressed document.
func (e *Entry) HasCoded() bool { return e.RawAndFlags&entryFlagsMask == 0 }

// RawBytes is the length of the document before compression.
func (e *Entry) RawBytes() int { return int(e.RawAndFlags & rawBytesMask) }

// StoredBytes is the length of the document in the file.
func (e *Entry) StoredBytes() int { return int(e.End - e.Start) }

// check verifies the entry against its block and the limits, so that every offset
// computed from it lies inside the block.
func (e *Entry) check(h *BlockHeader) error {
	switch {
	case e.Start > e.End || e.End > h.DataBytes:
		return fmt.Errorf("document from %d to %d in %d bytes", e.Start, e.End, h.DataBytes)
	case e.IdStart >= e.IdEnd || int64(e.IdEnd) > h.idBytes() || e.IdEnd-e.IdStart > MaxIDBytes:
		return fmt.Errorf("id from %d to %d in %d bytes", e.IdStart, e.IdEnd, h.idBytes())
	case e.RawAndFlags&^(entryFlagsMask|rawBytesMask) != 0:
		return errors.New("reserved bits of an entry are not zero")
	case e.Deleted() && (e.StoredBytes() != 0 || e.RawBytes() != 0 || e.StoredRaw()):
		return errors.New("delete with a document")
	case e.Lost() && (e.RawAndFlags != FlagLost || e.StoredBytes() != 0 || !h.RelocatedBlock):
		return errors.New("lost entry with a document")
	}
	return e.checkLengths()
}

// checkLengths compares the lengths of the document before and after compression.
func (e *Entry) checkLengths() error {
	switch {
	case e.RawBytes() > MaxDocumentBytes:
		return fmt.Errorf("document of %d bytes", e.RawBytes())
	case e.StoredRaw() && e.StoredBytes() != e.RawBytes():
		return fmt.Errorf("document of %d bytes is stored raw in %d", e.RawBytes(), e.StoredBytes())
	case e.HasCoded() && e.StoredBytes() >= e.RawBytes():
		return fmt.Errorf("document of %d bytes is compressed to %d", e.RawBytes(), e.StoredBytes())
	}
	return nil
}

// Block is a block's header and table, verified. The zero block is ready to be
// filled; filling it again reuses its memory.
type Block struct {
	BlockHeader
	Bytes []byte // header and table
}

// Parse verifies the header and table in b.bytes, which end with the table.
func (b *Block) Parse() error {
	h, err := ParseBlockHeader(b.Bytes)
	if err != nil {
		return err
	}
	if int64(len(b.Bytes)) != h.DataOffset() {
		return fmt.Errorf("table has %d bytes, want %d", len(b.Bytes)-BlockHeaderBytes, h.tableBytes)
	}
	if got := checksum.Update(0, b.Bytes[4:]); got != h.CRC {
		return fmt.Errorf("table's checksum is %08x, its bytes have %08x", h.CRC, got)
	}
	b.BlockHeader = h
	for i := range h.Count {
		e := b.Entry(i)
		if err := e.check(&h); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
	}
	last := b.Entry(h.Count - 1)
	if last.End != h.DataBytes || int64(last.IdEnd) != h.idBytes() {
		return errors.New("entries do not fill the block")
	}
	if at, end := b.Origin(Address{}); h.RelocatedBlock && end <= at.Block {
		return fmt.Errorf("block has the original offsets %d to %d", at.Block, end)
	}
	for i := range h.Count - 1 {
		if h.RelocatedBlock && b.Index(i) >= b.Index(i+1) {
			return fmt.Errorf("entry %d comes from index %d, the next one from %d", i, b.Index(i), b.Index(i+1))
		}
	}
	return nil
}

// Entry returns entry i.
func (b *Block) Entry(i int) Entry {
	return ParseEntry(b.Bytes[BlockHeaderBytes+EntryBytes*max(i-1, 0):], i)
}

// ID returns the id of an entry.
func (b *Block) ID(e Entry) []byte {
	ids := b.Bytes[b.IdsOffset():]
	return ids[e.IdStart:e.IdEnd:e.IdEnd]
}

// Index is the index in the address of entry i.
func (b *Block) Index(i int) uint16 {
	if !b.RelocatedBlock {
		return uint16(i)
	}
	return Little.Uint16(b.Bytes[b.OriginOffset()+OriginBytes+OriginalIndexBytes*int64(i):])
}

// Origin returns the original address of a block that was found at an address, which
// differs if the block is relocated, and the offset of its end in the original segment.
func (b *Block) Origin(at Address) (_ Address, end uint32) {
	if !b.RelocatedBlock {
		return at, at.Block + uint32(b.Size())
	}
	o := b.Bytes[b.OriginOffset():]
	return Address{Segment: ID(Little.Uint32(o)), Block: Little.Uint32(o[4:])}, Little.Uint32(o[8:])
}

// Chain is the checksum that the block has in its original segment, where the next
// block and positions refer to it; 0 if it is unknown.
func (b *Block) Chain() uint32 {
	if !b.RelocatedBlock {
		return b.CRC
	}
	return Little.Uint32(b.Bytes[b.OriginOffset()+12:])
}

// Expires returns the time at which entry i expires; zero: never.
func (b *Block) Expires(i int) time.Time {
	if !b.Expiries {
		return time.Time{}
	}
	seconds := Little.Uint32(b.Bytes[BlockHeaderBytes+EntryBytes*b.Count+ExpiryBytes*i:])
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0)
}

// Cursor returns the position in the input that was stored with the block.
func (b *Block) Cursor() []byte {
	return b.Bytes[len(b.Bytes)-b.cursorBytes:]
}
