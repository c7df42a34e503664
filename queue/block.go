package queue

import (
	"errors"
	"fmt"
	"time"

	"docstore/internal/checksum"
)

// blockHeader begins a block. The table follows it, then the documents.
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
type blockHeader struct {
	crc         uint32
	expiries    bool
	relocated   bool
	count       int
	tableBytes  uint32
	dataBytes   uint32
	previous    uint32
	appended    int64
	cursorBytes int
}

// originOffset is the offset in the block of the end of the entries and expiry times.
func (h *blockHeader) originOffset() int64 {
	width := int64(entryBytes)
	if h.expiries {
		width += expiryBytes
	}
	return blockHeaderBytes + width*int64(h.count)
}

// idsOffset is the offset in the block of the ids.
func (h *blockHeader) idsOffset() int64 {
	offset := h.originOffset()
	if h.relocated {
		offset += originBytes + originalIndexBytes*int64(h.count)
	}
	return offset
}

// idBytes is the length of all ids.
func (h *blockHeader) idBytes() int64 {
	return h.dataOffset() - h.idsOffset() - int64(h.cursorBytes)
}

// dataOffset is the offset in the block of the documents.
func (h *blockHeader) dataOffset() int64 { return blockHeaderBytes + int64(h.tableBytes) }

// size is the length of the block in the file.
func (h *blockHeader) size() int64 { return h.dataOffset() + int64(h.dataBytes) }

func (h *blockHeader) put(b []byte) {
	b[4] = byte(frameBlock)
	b[5] = 0
	if h.expiries {
		b[5] |= blockHasExpiries
	}
	if h.relocated {
		b[5] |= blockRelocated
	}
	little.PutUint16(b[6:], uint16(h.count))
	little.PutUint32(b[8:], h.tableBytes)
	little.PutUint32(b[12:], h.dataBytes)
	little.PutUint32(b[16:], h.previous)
	little.PutUint64(b[20:], uint64(h.appended))
	little.PutUint16(b[28:], uint16(h.cursorBytes))
	little.PutUint16(b[30:], 0)
}

// parseBlockHeader parses the header in b, which has blockHeaderBytes bytes. It checks
// everything that does not need the table: the lengths against each other and the limits.
func parseBlockHeader(b []byte) (blockHeader, error) {
	var h blockHeader
	if frameType(b[4]) != frameBlock {
		return h, fmt.Errorf("frame has type %d, want a block", b[4])
	}
	h.crc = little.Uint32(b)
	h.expiries = b[5]&blockHasExpiries != 0
	h.relocated = b[5]&blockRelocated != 0
	h.count = int(little.Uint16(b[6:]))
	h.tableBytes = little.Uint32(b[8:])
	h.dataBytes = little.Uint32(b[12:])
	h.previous = little.Uint32(b[16:])
	h.appended = int64(little.Uint64(b[20:]))
	h.cursorBytes = int(little.Uint16(b[28:]))
	switch {
	case b[5]&^(blockHasExpiries|blockRelocated) != 0 || b[30] != 0 || b[31] != 0:
		return h, errors.New("reserved bits of the block's header are not zero")
	case h.count == 0:
		return h, errors.New("block has no entries")
	case h.cursorBytes > MaxCursorBytes:
		return h, fmt.Errorf("cursor has %d bytes, more than %d", h.cursorBytes, MaxCursorBytes)
	case h.idBytes() < int64(h.count) || h.idBytes() > MaxBlockBytes+MaxIDBytes:
		return h, fmt.Errorf("table of %d entries has %d bytes", h.count, h.tableBytes)
	case int64(h.dataBytes) > max(MaxBlockBytes, MaxDocumentBytes):
		return h, fmt.Errorf("block has %d bytes of documents", h.dataBytes)
	}
	return h, nil
}

// entry is an entry of a block's table.
type entry struct {
	idStart, idEnd   uint32 // in the ids
	start, end       uint32 // in the data
	rawAndFlags, crc uint32
}

// parseEntry reads entry i from b, which holds the entry and, unless i is 0,
// the one before it.
func parseEntry(b []byte, i int) entry {
	var e entry
	if i > 0 {
		e.start = little.Uint32(b[0:])
		e.idStart = little.Uint32(b[4:])
		b = b[entryBytes:]
	}
	e.end = little.Uint32(b[0:])
	e.idEnd = little.Uint32(b[4:])
	e.rawAndFlags = little.Uint32(b[8:])
	e.crc = little.Uint32(b[12:])
	return e
}

func (e *entry) deleted() bool   { return e.rawAndFlags&flagDeleted != 0 }
func (e *entry) storedRaw() bool { return e.rawAndFlags&flagStoredRaw != 0 }
func (e *entry) lost() bool      { return e.rawAndFlags&flagLost != 0 }

// hasCoded reports whether the entry has a compressed document.
func (e *entry) hasCoded() bool { return e.rawAndFlags&entryFlagsMask == 0 }

// rawBytes is the length of the document before compression.
func (e *entry) rawBytes() int { return int(e.rawAndFlags & rawBytesMask) }

// storedBytes is the length of the document in the file.
func (e *entry) storedBytes() int { return int(e.end - e.start) }

// check verifies the entry against its block and the limits, so that every offset
// computed from it lies inside the block.
func (e *entry) check(h *blockHeader) error {
	switch {
	case e.start > e.end || e.end > h.dataBytes:
		return fmt.Errorf("document from %d to %d in %d bytes", e.start, e.end, h.dataBytes)
	case e.idStart >= e.idEnd || int64(e.idEnd) > h.idBytes() || e.idEnd-e.idStart > MaxIDBytes:
		return fmt.Errorf("id from %d to %d in %d bytes", e.idStart, e.idEnd, h.idBytes())
	case e.rawAndFlags&^(entryFlagsMask|rawBytesMask) != 0:
		return errors.New("reserved bits of an entry are not zero")
	case e.deleted() && (e.storedBytes() != 0 || e.rawBytes() != 0 || e.storedRaw()):
		return errors.New("delete with a document")
	case e.lost() && (e.rawAndFlags != flagLost || e.storedBytes() != 0 || !h.relocated):
		return errors.New("lost entry with a document")
	}
	return e.checkLengths()
}

// checkLengths compares the lengths of the document before and after compression.
func (e *entry) checkLengths() error {
	switch {
	case e.rawBytes() > MaxDocumentBytes:
		return fmt.Errorf("document of %d bytes", e.rawBytes())
	case e.storedRaw() && e.storedBytes() != e.rawBytes():
		return fmt.Errorf("document of %d bytes is stored raw in %d", e.rawBytes(), e.storedBytes())
	case e.hasCoded() && e.storedBytes() >= e.rawBytes():
		return fmt.Errorf("document of %d bytes is compressed to %d", e.rawBytes(), e.storedBytes())
	}
	return nil
}

// block is a block's header and table, verified. The zero block is ready to be
// filled; filling it again reuses its memory.
type block struct {
	blockHeader
	bytes []byte // header and table
}

// parse verifies the header and table in b.bytes, which end with the table.
func (b *block) parse() error {
	h, err := parseBlockHeader(b.bytes)
	if err != nil {
		return err
	}
	if int64(len(b.bytes)) != h.dataOffset() {
		return fmt.Errorf("table has %d bytes, want %d", len(b.bytes)-blockHeaderBytes, h.tableBytes)
	}
	if got := checksum.Update(0, b.bytes[4:]); got != h.crc {
		return fmt.Errorf("table's checksum is %08x, its bytes have %08x", h.crc, got)
	}
	b.blockHeader = h
	for i := range h.count {
		e := b.entry(i)
		if err := e.check(&h); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
	}
	last := b.entry(h.count - 1)
	if last.end != h.dataBytes || int64(last.idEnd) != h.idBytes() {
		return errors.New("entries do not fill the block")
	}
	if at, end := b.origin(Address{}); h.relocated && end <= at.Block {
		return fmt.Errorf("block has the original offsets %d to %d", at.Block, end)
	}
	for i := range h.count - 1 {
		if h.relocated && b.index(i) >= b.index(i+1) {
			return fmt.Errorf("entry %d comes from index %d, the next one from %d", i, b.index(i), b.index(i+1))
		}
	}
	return nil
}

func (b *block) entry(i int) entry {
	return parseEntry(b.bytes[blockHeaderBytes+entryBytes*max(i-1, 0):], i)
}

func (b *block) id(e entry) []byte {
	ids := b.bytes[b.idsOffset():]
	return ids[e.idStart:e.idEnd:e.idEnd]
}

// index is the index in the address of entry i.
func (b *block) index(i int) uint16 {
	if !b.relocated {
		return uint16(i)
	}
	return little.Uint16(b.bytes[b.originOffset()+originBytes+originalIndexBytes*int64(i):])
}

// origin returns the original address of a block that was found at an address, which
// differs if the block is relocated, and the offset of its end in the original segment.
func (b *block) origin(at Address) (_ Address, end uint32) {
	if !b.relocated {
		return at, at.Block + uint32(b.size())
	}
	o := b.bytes[b.originOffset():]
	return Address{Segment: SegmentID(little.Uint32(o)), Block: little.Uint32(o[4:])}, little.Uint32(o[8:])
}

// chain is the checksum that the block has in its original segment, where the next
// block and positions refer to it; 0 if it is unknown.
func (b *block) chain() uint32 {
	if !b.relocated {
		return b.crc
	}
	return little.Uint32(b.bytes[b.originOffset()+12:])
}

func (b *block) expires(i int) time.Time {
	if !b.expiries {
		return time.Time{}
	}
	seconds := little.Uint32(b.bytes[blockHeaderBytes+entryBytes*b.count+expiryBytes*i:])
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0)
}

func (b *block) cursor() []byte {
	return b.bytes[len(b.bytes)-b.cursorBytes:]
}
