package table

import (
	"encoding/binary"
	"slices"

	"docstore/internal/checksum"
	"docstore/lsm/internal/kv"
)

// blockBuilder builds a block in place at the end of a buffer. It assumes that the
// block will be even and full and writes keys and values at their final positions; an
// entry that makes the block mixed causes a copy.
type blockBuilder struct {
	buf   []byte // the block begins at start
	start int

	entries              int
	bytes                int // size of all keys and values
	keyBytes, valueBytes int // of the first entry
	mixed                bool
	valuesAt             int // start of the values of an even block

	offsets []uint32 // of the entries of a mixed block, relative to body
	body    []byte   // entries of a mixed block
}

// begin begins a block at the end of buf.
func (b *blockBuilder) begin(buf []byte) {
	b.buf, b.start, b.entries, b.bytes = buf, len(buf), 0, 0
}

// add adds an entry and reports whether it fit into the target size. An empty block
// accepts any entry that is not large.
func (b *blockBuilder) add(e *kv.Entry) bool {
	size := b.bytes + len(e.Key) + len(e.Value)
	if b.entries == 0 || b.mixed || len(e.Key) != b.keyBytes || len(e.Value) != b.valueBytes || e.Tombstone {
		return b.addSlowly(e, size)
	}
	if blockHeaderBytes+size > blockTargetBytes {
		return false
	}
	b.put(e, size)
	return true
}

// put adds an entry to an even block with space for it.
func (b *blockBuilder) put(e *kv.Entry, size int) {
	keyAt := b.buf[b.start+blockHeaderBytes+b.entries*b.keyBytes:]
	if b.keyBytes == 8 { // faster than copy
		binary.BigEndian.PutUint64(keyAt, binary.BigEndian.Uint64(e.Key))
	} else {
		copy(keyAt, e.Key)
	}
	copy(b.buf[b.valuesAt+b.entries*b.valueBytes:], e.Value)
	b.entries, b.bytes = b.entries+1, size
}

func (b *blockBuilder) addSlowly(e *kv.Entry, size int) bool {
	switch {
	case b.entries == 0 && !e.Tombstone && len(e.Key) > 0:
		b.mixed, b.keyBytes, b.valueBytes = false, len(e.Key), len(e.Value)
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

// mix converts an even block to a mixed one.
func (b *blockBuilder) mix() {
	b.mixed, b.offsets, b.body = true, b.offsets[:0], b.body[:0]
	keys, values := b.buf[b.start+blockHeaderBytes:], b.buf[b.valuesAt:]
	for i := range b.entries {
		b.putMixed(&kv.Entry{
			Key:   keys[i*b.keyBytes : (i+1)*b.keyBytes],
			Value: values[i*b.valueBytes : (i+1)*b.valueBytes],
		})
	}
}

func (b *blockBuilder) putMixed(e *kv.Entry) {
	b.offsets = append(b.offsets, uint32(len(b.body)))
	b.body = append(appendEntryHead(b.body, e), e.Value...)
}

// finish completes the block and returns it and the buffer that ends with it. seed is
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
		if b.valuesAt > keysEnd { // not full
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

// putBlockHeader writes a block header without its checksums.
func putBlockHeader(b []byte, length int, kind uint32, count int) {
	order.PutUint32(b[4:], uint32(length-8))
	order.PutUint32(b[8:], kind)
	order.PutUint32(b[12:], uint32(count))
}

// appendEntryHead appends the encoding of an entry of a mixed block up to its value.
func appendEntryHead(dst []byte, e *kv.Entry) []byte {
	packed := uint64(len(e.Value)) << 1
	if e.Tombstone {
		packed |= 1
	}
	dst = binary.AppendUvarint(dst, uint64(len(e.Key)))
	dst = binary.AppendUvarint(dst, packed)
	return append(dst, e.Key...)
}

// isLarge reports whether an entry exceeds the target and so gets its own block.
func isLarge(e *kv.Entry) bool {
	size := blockHeaderBytes + len(e.Key) + len(e.Value)
	if e.Tombstone || len(e.Key) == 0 {
		size += maxEntryBytes
	}
	return size > blockTargetBytes
}

// largeBlock returns the block of a large entry without the value at its end. seed is
// that of block.headIsValid.
func largeBlock(e *kv.Entry, seed uint32) (head []byte) {
	head = make([]byte, blockHeaderBytes+4, blockHeaderBytes+maxEntryBytes+len(e.Key))
	head = appendEntryHead(head, e)
	putBlockHeader(head, len(head)+len(e.Value), kindMixed, 1)
	order.PutUint32(head[blockHeaderBytes:], blockHeaderBytes+4)
	order.PutUint32(head, checksum.Update(checksum.Update(seed, head[4:]), e.Value))
	return head
}
