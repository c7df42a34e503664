package lsm

import (
	"encoding/binary"
	"slices"

	"docstore/internal/checksum"
)

// blockBuilder makes a block of entries as they come, behind what a buffer holds
// already. It expects the block to be even and full: then keys and values go to where
// they will lie. If an entry comes that makes it mixed, what there is moves.
type blockBuilder struct {
	buf   []byte // the block begins at start
	start int

	entries              int
	bytes                int // of all keys and values
	keyBytes, valueBytes int // of the first entry
	mixed                bool
	valuesAt             int // of an even block

	offsets []uint32 // of a mixed block's entries, from the first of them on
	body    []byte   // these
}

// begin begins a block behind what buf holds.
func (b *blockBuilder) begin(buf []byte) {
	b.buf, b.start, b.entries, b.bytes = buf, len(buf), 0, 0
}

// add adds an entry, unless the block would be over its target with it. An empty
// block takes any that is not large.
func (b *blockBuilder) add(e *entry) bool {
	size := b.bytes + len(e.key) + len(e.value)
	if b.entries == 0 || b.mixed || len(e.key) != b.keyBytes || len(e.value) != b.valueBytes || e.tombstone {
		return b.addSlowly(e, size)
	}
	if blockHeaderBytes+size > blockTargetBytes {
		return false
	}
	b.put(e, size)
	return true
}

// put adds an entry to an even block that has room for it.
func (b *blockBuilder) put(e *entry, size int) {
	copy(b.buf[b.start+blockHeaderBytes+b.entries*b.keyBytes:], e.key)
	copy(b.buf[b.valuesAt+b.entries*b.valueBytes:], e.value)
	b.entries, b.bytes = b.entries+1, size
}

func (b *blockBuilder) addSlowly(e *entry, size int) bool {
	switch {
	case b.entries == 0 && !e.tombstone && len(e.key) > 0:
		b.mixed, b.keyBytes, b.valueBytes = false, len(e.key), len(e.value)
		b.buf = slices.Grow(b.buf, blockTargetBytes)[:b.start+blockTargetBytes]
		b.valuesAt = b.start + blockHeaderBytes + (blockTargetBytes-blockHeaderBytes)/size*b.keyBytes
		b.put(e, size)
		return true
	case b.entries == 0:
		b.mixed, b.offsets, b.body = true, b.offsets[:0], b.body[:0]
	case blockHeaderBytes+size+maxEntryBytes*(b.entries+1) > blockTargetBytes:
		return false
	case !b.mixed:
		b.mix()
	}
	b.putMixed(e)
	b.entries, b.bytes = b.entries+1, size
	return true
}

// mix makes an even block a mixed one.
func (b *blockBuilder) mix() {
	b.mixed, b.offsets, b.body = true, b.offsets[:0], b.body[:0]
	keys, values := b.buf[b.start+blockHeaderBytes:], b.buf[b.valuesAt:]
	for i := range b.entries {
		b.putMixed(&entry{
			key:   keys[i*b.keyBytes : (i+1)*b.keyBytes],
			value: values[i*b.valueBytes : (i+1)*b.valueBytes],
		})
	}
}

func (b *blockBuilder) putMixed(e *entry) {
	b.offsets = append(b.offsets, uint32(len(b.body)))
	b.body = append(appendEntryHead(b.body, e), e.value...)
}

// finish ends the block and returns it, and the buffer that it is the end of. seed is
// that of block.headIsValid.
func (b *blockBuilder) finish(seed uint32) (built block, buf []byte) {
	kind := uint32(kindMixed)
	if b.mixed {
		first := blockHeaderBytes + 4*b.entries
		b.buf = slices.Grow(b.buf[:b.start], first+len(b.body))[:b.start+first]
		for i, at := range b.offsets {
			order.PutUint32(b.buf[b.start+blockHeaderBytes+4*i:], uint32(first)+at)
		}
		b.buf = append(b.buf, b.body...)
	} else {
		kind = kindEven | uint32(b.keyBytes)<<16
		keysEnd := b.start + blockHeaderBytes + b.entries*b.keyBytes
		if b.valuesAt > keysEnd { // it is not full
			copy(b.buf[keysEnd:], b.buf[b.valuesAt:b.valuesAt+b.entries*b.valueBytes])
		}
		b.buf = b.buf[:keysEnd+b.entries*b.valueBytes]
	}
	built = block{data: b.buf[b.start:], count: b.entries}
	if !b.mixed {
		built.keyBytes, built.valueBytes = b.keyBytes, b.valueBytes
	}
	putBlockHeader(built.data, len(built.data), kind, b.entries)
	built.setChecksums(seed)
	b.entries = 0
	return built, b.buf
}

// putBlockHeader writes the header of a block of the given length without its checksums.
func putBlockHeader(b []byte, length int, kind uint32, count int) {
	order.PutUint32(b[4:], uint32(length-8))
	order.PutUint32(b[8:], kind)
	order.PutUint32(b[12:], uint32(count))
}

// appendEntryHead appends what an entry of a mixed block has before its value.
func appendEntryHead(dst []byte, e *entry) []byte {
	packed := uint64(len(e.value)) << 1
	if e.tombstone {
		packed |= 1
	}
	dst = binary.AppendUvarint(dst, uint64(len(e.key)))
	dst = binary.AppendUvarint(dst, packed)
	return append(dst, e.key...)
}

// isLarge tells whether an entry has a block of its own, over the target.
func isLarge(e *entry) bool {
	size := blockHeaderBytes + len(e.key) + len(e.value)
	if e.tombstone || len(e.key) == 0 {
		size += maxEntryBytes
	}
	return size > blockTargetBytes
}

// largeBlock returns the block of a large entry without the value at its end. seed is
// that of block.headIsValid.
func largeBlock(e *entry, seed uint32) (head []byte) {
	head = make([]byte, blockHeaderBytes+4, blockHeaderBytes+maxEntryBytes+len(e.key))
	head = appendEntryHead(head, e)
	putBlockHeader(head, len(head)+len(e.value), kindMixed, 1)
	order.PutUint32(head[blockHeaderBytes:], blockHeaderBytes+4)
	order.PutUint32(head, checksum.Update(checksum.Update(seed, head[4:]), e.value))
	return head
}
