package segment

import (
	"math"
	"slices"
	"sync"
	"time"

	"docstore/queue/codec"
)

// ChunkBytes of ids and documents are compressed at a time: little enough that the
// processors finish a block at about the same time, and enough to make the cost of the
// handover negligible.
const ChunkBytes = 16 << 10

// PendingBlock is a block to be written. It is filled chunk by chunk, and full chunks are
// compressed while it is still being filled. Its address is known before its first entry;
// its size is known when all of its chunks are compressed.
type PendingBlock struct {
	At       Address       // of its first entry
	Encoder  codec.Encoder // nil: documents are stored uncompressed
	Appended int64         // time of its first entry, Unix milliseconds
	count    int
	RawBytes int // of ids and documents
	expiries bool
	Cursor   []byte

	chunks   []*Chunk // in order
	filling  *Chunk   // the last one while it is not full
	Encoding sync.WaitGroup
}

// Takes reports whether an entry of the given bytes fits into a block of blockBytes.
func (b *PendingBlock) Takes(bytes, blockBytes int) bool {
	return b.count < MaxBlockEntries && b.RawBytes+bytes <= blockBytes
}

// Add copies an entry into the last chunk and returns its index in the block.
func (b *PendingBlock) Add(id, document []byte, deleted bool, expires time.Time) uint16 {
	index := b.count
	if b.filling == nil {
		b.filling = newChunk(b, index)
		b.chunks = append(b.chunks, b.filling)
	}
	expiry := ExpirySeconds(expires)
	b.filling.add(id, document, deleted, expiry)
	b.count++
	b.RawBytes += len(id) + len(document)
	b.expiries = b.expiries || expiry != 0
	return uint16(index)
}

// Cut ends the chunk that is being filled and returns it, if it has at least the given
// bytes of ids and documents; otherwise it returns nil.
func (b *PendingBlock) Cut(bytes int) *Chunk {
	c := b.filling
	if c == nil || len(c.ids)+len(c.documents) < bytes {
		return nil
	}
	b.filling = nil
	return c
}

// header returns the block's header. previous is the checksum of the previous block. The
// chunks must be encoded.
func (b *PendingBlock) header(previous uint32) BlockHeader {
	h := BlockHeader{
		Expiries: b.expiries, Count: b.count, Previous: previous,
		Appended: b.Appended, cursorBytes: len(b.Cursor),
	}
	ids := 0
	for _, c := range b.chunks {
		ids += len(c.ids)
		h.DataBytes += uint32(len(c.stored))
	}
	h.tableBytes = uint32(h.IdsOffset()) - BlockHeaderBytes + uint32(ids+len(b.Cursor))
	return h
}

// Size returns the size of the block in the file. The chunks must be encoded.
func (b *PendingBlock) Size() int64 {
	h := b.header(0)
	return h.Size()
}

// RelocatedBytes is the maximum size of the block in a rewrite, with its row in the
// relocations: all documents are kept and stored raw.
func (b *PendingBlock) RelocatedBytes() int64 {
	return BlockHeaderBytes + OriginBytes + relocationBytes +
		int64(b.count)*(EntryBytes+ExpiryBytes+OriginalIndexBytes) + int64(b.RawBytes) + int64(len(b.Cursor))
}

// Bytes returns the encoded block. previous is the checksum of the previous block. It
// reuses the memory of room. The chunks must be encoded.
func (b *PendingBlock) Bytes(room []byte, previous uint32) []byte {
	h := b.header(previous)
	out := slices.Grow(room[:0], int(h.Size()))[:h.Size()]
	table, data := out[:h.DataOffset()], out[h.DataOffset():]
	entries := table[BlockHeaderBytes:]
	expiries := entries[EntryBytes*b.count:]
	ids := table[h.IdsOffset():]
	idEnd, end := 0, 0
	for _, c := range b.chunks {
		for i := range c.entries {
			e := &c.entries[i]
			Little.PutUint32(entries[0:], uint32(end+e.storedEnd))
			Little.PutUint32(entries[4:], uint32(idEnd+e.idEnd))
			Little.PutUint32(entries[8:], e.rawAndFlags)
			Little.PutUint32(entries[12:], e.crc)
			entries = entries[EntryBytes:]
			if b.expiries {
				Little.PutUint32(expiries, e.expiry)
				expiries = expiries[ExpiryBytes:]
			}
		}
		idEnd += copy(ids[idEnd:], c.ids)
		end += copy(data[end:], c.stored)
	}
	copy(ids[idEnd:], b.Cursor)
	h.put(table)
	sealFrame(table)
	return out
}

// Release releases the memory of the chunks for reuse.
func (b *PendingBlock) Release() {
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

// Chunk is a sequence of a block's entries. It belongs to one goroutine at a time: the
// one that fills the block, then the one that encodes the chunk, then the one that writes
// the block.
type Chunk struct {
	Block   *PendingBlock
	index   int // of its first entry in the block
	entries []pendingEntry
	ids     []byte
	// uncompressed, and after encode the stored documents
	documents, stored []byte
	room              [placeBytes + MaxIDBytes]byte // for encode
}

var chunkPool = sync.Pool{New: func() any { return new(Chunk) }}

// newChunk returns an empty chunk for the entries of a block from index on.
func newChunk(b *PendingBlock, index int) *Chunk {
	c := chunkPool.Get().(*Chunk)
	c.Block, c.index = b, index
	c.entries, c.ids, c.documents, c.stored = c.entries[:0], c.ids[:0], c.documents[:0], c.stored[:0]
	return c
}

// release releases the chunk's memory for reuse. The memory of a huge document is freed.
func (c *Chunk) release() {
	c.Block = nil
	if cap(c.documents)+cap(c.stored) <= maxScratchBytes {
		chunkPool.Put(c)
	}
}

func (c *Chunk) add(id, document []byte, deleted bool, expiry uint32) {
	c.ids = append(c.ids, id...)
	c.documents = append(c.documents, document...)
	c.entries = append(c.entries, pendingEntry{
		idEnd: len(c.ids), end: len(c.documents), expiry: expiry, deleted: deleted,
	})
}

// Encode compresses the documents one by one and computes their checksums. Without an
// encoder the stored documents are the uncompressed ones.
func (c *Chunk) Encode() {
	var idStart, start, storedEnd int
	at, encoder := c.Block.At, c.Block.Encoder
	for i := range c.entries {
		e := &c.entries[i]
		id, stored := c.ids[idStart:e.idEnd], c.documents[start:e.end]
		idStart, start = e.idEnd, e.end
		e.rawAndFlags = uint32(len(stored)) | FlagStoredRaw
		if e.deleted {
			e.rawAndFlags = FlagDeleted
		} else if encoder != nil {
			var storedRaw bool
			if c.stored, storedRaw = AppendEncoded(encoder, c.stored, stored); !storedRaw {
				e.rawAndFlags &^= FlagStoredRaw
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

// AppendEncoded appends the document, compressed if that is shorter.
func AppendEncoded(enc codec.Encoder, dst, document []byte) (out []byte, storedRaw bool) {
	if enc != nil && len(document) > 0 {
		out, ok := enc.Encode(dst, document)
		if ok && len(out)-len(dst) < len(document) {
			return out, false
		}
	}
	return append(dst, document...), true
}

// ExpirySeconds returns the time in whole Unix seconds, rounded up so that nothing
// expires early, as 32 bits; 0 is never.
func ExpirySeconds(t time.Time) uint32 {
	if t.IsZero() {
		return 0
	}
	seconds := t.Unix()
	if t.Nanosecond() > 0 {
		seconds++
	}
	return uint32(min(max(seconds, 1), math.MaxUint32))
}
