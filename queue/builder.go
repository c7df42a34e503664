package queue

import (
	"math"
	"slices"
	"time"
)

// pendingEntry is an entry of the block being filled.
type pendingEntry struct {
	idEnd, end int // in blockBuilder.ids and documents
	expiry     uint32
	deleted    bool
}

// blockBuilder collects the entries of a block as they come. Nothing is
// compressed before encode, which is free to do so in any order: where the
// block lies was known before its first entry.
type blockBuilder struct {
	entries   []pendingEntry
	ids       []byte
	documents []byte // as appended
	expiries  bool
	appended  int64
	out       []byte // the encoded block, valid until the next encode
}

func (b *blockBuilder) count() int    { return len(b.entries) }
func (b *blockBuilder) rawBytes() int { return len(b.ids) + len(b.documents) }

// takes tells whether an entry of the given bytes still fits into a block of
// blockBytes. An empty block takes every entry.
func (b *blockBuilder) takes(bytes, blockBytes int) bool {
	return b.count() == 0 || b.count() < MaxBlockEntries && b.rawBytes()+bytes <= blockBytes
}

// add takes an entry and returns its index.
func (b *blockBuilder) add(id, document []byte, deleted bool, expiry uint32, now int64) uint16 {
	if b.count() == 0 {
		b.appended = now
	}
	b.ids = append(b.ids, id...)
	b.documents = append(b.documents, document...)
	b.expiries = b.expiries || expiry != 0
	b.entries = append(b.entries, pendingEntry{
		idEnd: len(b.ids), end: len(b.documents), expiry: expiry, deleted: deleted,
	})
	return uint16(len(b.entries) - 1)
}

// reset empties the block. Memory that a huge document needed is given back.
func (b *blockBuilder) reset() {
	if cap(b.documents) > 2*MaxBlockBytes {
		b.documents, b.out = nil, nil
	}
	b.entries, b.ids, b.documents, b.expiries = b.entries[:0], b.ids[:0], b.documents[:0], false
}

// encode returns the block as it is written at the given address, whose index
// is zero, behind the block with the checksum previous. A nil encoder stores
// everything raw.
func (b *blockBuilder) encode(enc encoder, at Address, previous uint32, cursor []byte) []byte {
	h := blockHeader{
		expiries: b.expiries, count: b.count(), previous: previous,
		appended: b.appended, cursorBytes: len(cursor),
	}
	h.tableBytes = uint32(h.idsOffset()) - blockHeaderBytes + uint32(len(b.ids)+len(cursor))
	size := int(h.dataOffset())
	out := slices.Grow(b.out[:0], size+len(b.documents))[:size]
	ids := out[h.idsOffset():]
	copy(ids[copy(ids, b.ids):], cursor)

	var idStart, start int
	for i, p := range b.entries {
		id, document := b.ids[idStart:p.idEnd], b.documents[start:p.end]
		idStart, start = p.idEnd, p.end
		rawAndFlags := uint32(len(document))
		before := len(out)
		switch {
		case p.deleted:
			rawAndFlags = flagDeleted
		default:
			var stored bool
			if out, stored = appendEncoded(enc, out, document); stored {
				rawAndFlags |= flagStoredRaw
			}
		}
		at.Index = uint16(i)
		e := out[blockHeaderBytes+entryBytes*i:]
		little.PutUint32(e[0:], uint32(len(out)-size))
		little.PutUint32(e[4:], uint32(p.idEnd))
		little.PutUint32(e[8:], rawAndFlags)
		little.PutUint32(e[12:], documentCRC(at, rawAndFlags, id, out[before:]))
		if b.expiries {
			little.PutUint32(out[blockHeaderBytes+entryBytes*b.count()+expiryBytes*i:], p.expiry)
		}
	}
	h.dataBytes = uint32(len(out) - size)
	h.put(out)
	sealFrame(out[:size])
	b.out = out
	return out
}

// appendEncoded appends the document compressed, or as it is where that is not
// longer.
func appendEncoded(enc encoder, dst, document []byte) (out []byte, storedRaw bool) {
	if enc != nil && len(document) > 0 {
		out, ok := enc.encode(dst, document)
		if ok && len(out)-len(dst) < len(document) {
			return out, false
		}
	}
	return append(dst, document...), true
}

// expirySeconds is the time in whole Unix seconds, rounded up so that nothing
// expires early, in the 32 bits there are for it; 0 is never.
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
