package queue

import (
	"math"
	"slices"
	"sync"
	"time"

	"docstore/queue/codec"
)

// chunkBytes of ids and documents are compressed at a time: little enough that the
// processors finish a block at about the same time, and enough to make the cost of the
// handover negligible.
const chunkBytes = 16 << 10

// pendingBlock is a block to be written. It is filled chunk by chunk, and full chunks are
// compressed while it is still being filled. Its address is known before its first entry;
// its size is known when all of its chunks are compressed.
type pendingBlock struct {
	at       Address       // of its first entry
	encoder  codec.Encoder // nil: documents are stored uncompressed
	appended int64         // time of its first entry, Unix milliseconds
	count    int
	rawBytes int // of ids and documents
	expiries bool
	cursor   []byte

	chunks   []*chunk // in order
	filling  *chunk   // the last one while it is not full
	encoding sync.WaitGroup
}

// takes reports whether an entry of the given bytes fits into a block of blockBytes.
func (b *pendingBlock) takes(bytes, blockBytes int) bool {
	return b.count < MaxBlockEntries && b.rawBytes+bytes <= blockBytes
}

// add copies an entry into the last chunk and returns its index in the block.
func (b *pendingBlock) add(id, document []byte, deleted bool, expires time.Time) uint16 {
	index := b.count
	if b.filling == nil {
		b.filling = newChunk(b, index)
		b.chunks = append(b.chunks, b.filling)
	}
	expiry := expirySeconds(expires)
	b.filling.add(id, document, deleted, expiry)
	b.count++
	b.rawBytes += len(id) + len(document)
	b.expiries = b.expiries || expiry != 0
	return uint16(index)
}

// cut ends the chunk that is being filled and returns it, if it has at least the given
// bytes of ids and documents; otherwise it returns nil.
func (b *pendingBlock) cut(bytes int) *chunk {
	c := b.filling
	if c == nil || len(c.ids)+len(c.documents) < bytes {
		return nil
	}
	b.filling = nil
	return c
}

// header returns the block's header. previous is the checksum of the previous block. The
// chunks must be encoded.
func (b *pendingBlock) header(previous uint32) blockHeader {
	h := blockHeader{
		expiries: b.expiries, count: b.count, previous: previous,
		appended: b.appended, cursorBytes: len(b.cursor),
	}
	ids := 0
	for _, c := range b.chunks {
		ids += len(c.ids)
		h.dataBytes += uint32(len(c.stored))
	}
	h.tableBytes = uint32(h.idsOffset()) - blockHeaderBytes + uint32(ids+len(b.cursor))
	return h
}

// size returns the size of the block in the file. The chunks must be encoded.
func (b *pendingBlock) size() int64 {
	h := b.header(0)
	return h.size()
}

// relocatedBytes is the maximum size of the block in a rewrite, with its row in the
// relocations: all documents are kept and stored raw.
func (b *pendingBlock) relocatedBytes() int64 {
	return blockHeaderBytes + originBytes + relocationBytes +
		int64(b.count)*(entryBytes+expiryBytes+originalIndexBytes) + int64(b.rawBytes)
}

// bytes returns the encoded block. previous is the checksum of the previous block. It
// reuses the memory of room. The chunks must be encoded.
func (b *pendingBlock) bytes(room []byte, previous uint32) []byte {
	h := b.header(previous)
	out := slices.Grow(room[:0], int(h.size()))[:h.size()]
	table, data := out[:h.dataOffset()], out[h.dataOffset():]
	entries := table[blockHeaderBytes:]
	expiries := entries[entryBytes*b.count:]
	ids := table[h.idsOffset():]
	idEnd, end := 0, 0
	for _, c := range b.chunks {
		for i := range c.entries {
			e := &c.entries[i]
			little.PutUint32(entries[0:], uint32(end+e.storedEnd))
			little.PutUint32(entries[4:], uint32(idEnd+e.idEnd))
			little.PutUint32(entries[8:], e.rawAndFlags)
			little.PutUint32(entries[12:], e.crc)
			entries = entries[entryBytes:]
			if b.expiries {
				little.PutUint32(expiries, e.expiry)
				expiries = expiries[expiryBytes:]
			}
		}
		idEnd += copy(ids[idEnd:], c.ids)
		end += copy(data[end:], c.stored)
	}
	copy(ids[idEnd:], b.cursor)
	h.put(table)
	sealFrame(table)
	return out
}

// release releases the memory of the chunks for reuse.
func (b *pendingBlock) release() {
	for _, c := range b.chunks {
		c.release()
	}
	b.chunks = nil
}

// pendingEntry is an entry of a chunk.
type pendingEntry struct {
	idEnd, end int // in the chunk's ids and documents
	expiry     uint32
	deleted    bool

	// Set by encode:
	storedEnd   int // in the chunk's stored
	rawAndFlags uint32
	crc         uint32
}

// chunk is a sequence of a block's entries. It belongs to one goroutine at a time: the
// one that fills the block, then the one that encodes the chunk, then the one that writes
// the block.
type chunk struct {
	block   *pendingBlock
	index   int // of its first entry in the block
	entries []pendingEntry
	ids     []byte
	// uncompressed, and after encode the stored documents
	documents, stored []byte
	room              [placeBytes + MaxIDBytes]byte // for encode
}

var chunkPool = sync.Pool{New: func() any { return new(chunk) }}

// newChunk returns an empty chunk for the entries of a block from index on.
func newChunk(b *pendingBlock, index int) *chunk {
	c := chunkPool.Get().(*chunk)
	c.block, c.index = b, index
	c.entries, c.ids, c.documents, c.stored = c.entries[:0], c.ids[:0], c.documents[:0], c.stored[:0]
	return c
}

// release releases the chunk's memory for reuse. The memory of a huge document is freed.
func (c *chunk) release() {
	c.block = nil
	if cap(c.documents)+cap(c.stored) <= maxScratchBytes {
		chunkPool.Put(c)
	}
}

func (c *chunk) add(id, document []byte, deleted bool, expiry uint32) {
	c.ids = append(c.ids, id...)
	c.documents = append(c.documents, document...)
	c.entries = append(c.entries, pendingEntry{
		idEnd: len(c.ids), end: len(c.documents), expiry: expiry, deleted: deleted,
	})
}

// encode compresses the documents one by one and computes their checksums. Without an
// encoder the stored documents are the uncompressed ones.
func (c *chunk) encode() {
	var idStart, start, storedEnd int
	at, encoder := c.block.at, c.block.encoder
	for i := range c.entries {
		e := &c.entries[i]
		id, stored := c.ids[idStart:e.idEnd], c.documents[start:e.end]
		idStart, start = e.idEnd, e.end
		e.rawAndFlags = uint32(len(stored)) | flagStoredRaw
		if e.deleted {
			e.rawAndFlags = flagDeleted
		} else if encoder != nil {
			var storedRaw bool
			if c.stored, storedRaw = appendEncoded(encoder, c.stored, stored); !storedRaw {
				e.rawAndFlags &^= flagStoredRaw
			}
			stored = c.stored[storedEnd:]
		}
		storedEnd += len(stored)
		e.storedEnd = storedEnd
		at.Index = uint16(c.index + i)
		e.crc = sumDocument(c.room[:], at, e.rawAndFlags, id, stored)
	}
	if encoder == nil {
		c.documents, c.stored = c.stored, c.documents
	}
}

// appendEncoded appends the document, compressed if that is shorter.
func appendEncoded(enc codec.Encoder, dst, document []byte) (out []byte, storedRaw bool) {
	if enc != nil && len(document) > 0 {
		out, ok := enc.Encode(dst, document)
		if ok && len(out)-len(dst) < len(document) {
			return out, false
		}
	}
	return append(dst, document...), true
}

// expirySeconds returns the time in whole Unix seconds, rounded up so that nothing
// expires early, as 32 bits; 0 is never.
func expirySeconds(t time.Time) uint32 {
	if t.IsZero() {
		return 0
	}
	seconds := t.Unix()
	if t.Nanosecond() > 0 {
		seconds++
	}
	return uint32(min(max(seconds, 1), math.MaxUint32))
}
