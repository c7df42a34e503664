package table

import (
	"bytes"
	"encoding/binary"

	"docstore/internal/checksum"
	"docstore/lsm/internal/kv"
)

// A block of a table can be followed by padding, which is zero. There are two kinds of
// blocks, with the same header:
//
//	block   crc | length u32 | kind u8 | reserved u8 | key bytes u16 | count u32 | values crc | body
//
// The crc also covers the block's identity: the bytes of the table's header from the
// version on, the number of the block u32, the last key of the previous block, and the
// block from the length on, without the values of an even block. Those have the values
// crc, so that the keys, which prove absence, can be verified alone. The values crc of
// a mixed block is zero.
//
// In an even block all keys have the length in the header, all values have one length,
// which follows from the block's length, and there is no tombstone. So an entry is
// located by a multiplication, and a search reads only keys:
//
//	even    count x key | count x value
//
// All other blocks are mixed. Their header has zero key bytes:
//
//	mixed   count x entry offset u32 | entries
//	entry   key length uvarint | value length<<1 + tombstone uvarint | key | value
const (
	kindMixed = 1
	kindEven  = 2

	blockHeaderBytes = 20
	valuesCRCAt      = 16
	// pageBytes is the unit in which the kernel maps and reads.
	pageBytes = 4 << 10
	// blockTargetBytes is the size at which a block is closed. A larger entry gets a
	// separate block.
	blockTargetBytes = pageBytes
	// maxPaddingBytes is the maximum padding after a block that keeps the next block
	// from crossing a page boundary.
	maxPaddingBytes = pageBytes / 32

	// maxEntryBytes is the maximum size of an entry in a mixed block without key and
	// value, including its offset.
	maxEntryBytes = 4 + 3 + 4
)

// block is a block with a verified header.
type block struct {
	data       []byte // the whole of it
	count      int
	keyBytes   int // of each key of an even block; 0 in a mixed one
	valueBytes int // of each value of an even block
}

// parseBlock checks the header of the block in b, which may end with padding. In most even
// blocks an entry has entryBytes, which saves a division.
func parseBlock(b []byte, entryBytes int) (block, *FormatFault) {
	if len(b) < blockHeaderBytes {
		return block{}, &FormatFault{Reason: "truncated block"}
	}
	length := uint64(order.Uint32(b[4:])) + 8
	if length < blockHeaderBytes || length > uint64(len(b)) || uint64(len(b))-length > maxPaddingBytes {
		return block{}, &FormatFault{Reason: "block length differs from the index"}
	}
	b = b[:length]
	kind, count, body := order.Uint32(b[8:]), uint64(order.Uint32(b[12:])), length-blockHeaderBytes
	switch kind & 0xffff {
	case kindMixed:
		if kind>>16 != 0 || count == 0 || count > body/4 {
			return block{}, &FormatFault{Reason: "block with an impossible number of entries"}
		}
		return block{data: b, count: int(count)}, nil
	case kindEven:
		keyBytes := uint64(kind >> 16)
		entry := uint64(entryBytes)
		if count > 0 && entry*count != body {
			entry = body / count
		}
		if keyBytes == 0 || count == 0 || entry*count != body || keyBytes > entry {
			return block{}, &FormatFault{Reason: "block with an impossible number of entries"}
		}
		return block{data: b, count: int(count), keyBytes: int(keyBytes), valueBytes: int(entry - keyBytes)}, nil
	}
	return block{}, &FormatFault{Reason: "block of an unknown kind"}
}

// head returns the part of the block covered by the crc: header and keys of an even
// block, all of a mixed block.
func (b block) head() []byte {
	if b.keyBytes == 0 {
		return b.data
	}
	return b.data[:blockHeaderBytes+b.count*b.keyBytes]
}

// values returns the part of the block covered by the values crc.
func (b block) values() []byte { return b.data[len(b.head()):] }

// headIsValid verifies the crc. seed is the checksum of the covered bytes before the
// block.
func (b block) headIsValid(seed uint32) bool {
	return order.Uint32(b.data) == checksum.Update(seed, b.head()[4:])
}

// valuesAreValid verifies the values crc. headIsValid must have returned true.
func (b block) valuesAreValid() bool {
	return order.Uint32(b.data[valuesCRCAt:]) == checksum.Of(b.values())
}

// setChecksums sets both checksums. seed is that of headIsValid.
func (b block) setChecksums(seed uint32) {
	order.PutUint32(b.data[valuesCRCAt:], checksum.Of(b.values()))
	order.PutUint32(b.data, checksum.Update(seed, b.head()[4:]))
}

// checkEntries checks the positions and the order of all entries.
func (b block) checkEntries() *FormatFault {
	if b.keyBytes == 8 {
		if !b.wordsRise() {
			return &FormatFault{Reason: "block with keys out of order"}
		}
		return nil
	}
	at := blockHeaderBytes + 4*b.count
	var last []byte
	for i := range b.count {
		key := b.evenKey(i)
		if b.keyBytes == 0 {
			if int(order.Uint32(b.data[blockHeaderBytes+4*i:])) != at {
				return &FormatFault{Reason: "block with an entry out of place"}
			}
			e, size, ok := b.entryAt(at)
			if !ok {
				return &FormatFault{Reason: "block with a malformed entry"}
			}
			key, at = e.Key, at+size
		}
		if i > 0 && bytes.Compare(last, key) >= 0 {
			return &FormatFault{Reason: "block with keys out of order"}
		}
		last = key
	}
	if b.keyBytes == 0 && at != len(b.data) {
		return &FormatFault{Reason: "block with bytes after its last entry"}
	}
	return nil
}

// wordsRise reports whether the keys of an even block with keys of eight bytes are in
// order.
func (b block) wordsRise() bool {
	keys := b.data[blockHeaderBytes : blockHeaderBytes+8*b.count]
	last := binary.BigEndian.Uint64(keys)
	for keys = keys[8:]; len(keys) > 0; keys = keys[8:] {
		key := binary.BigEndian.Uint64(keys)
		if key <= last {
			return false
		}
		last = key
	}
	return true
}

// entryAt decodes the entry at an offset of a mixed block and returns its length.
func (b block) entryAt(at int) (e kv.Entry, size int, ok bool) {
	if uint(at) > uint(len(b.data)) {
		return kv.Entry{}, 0, false
	}
	rest := b.data[at:]
	keyBytes, n := binary.Uvarint(rest)
	if n <= 0 || keyBytes > kv.MaxKeyBytes {
		return kv.Entry{}, 0, false
	}
	packed, m := binary.Uvarint(rest[n:])
	if m <= 0 || packed>>1 > kv.MaxValueBytes {
		return kv.Entry{}, 0, false
	}
	keyEnd := uint64(n+m) + keyBytes
	end := keyEnd + packed>>1
	if end > uint64(len(rest)) {
		return kv.Entry{}, 0, false
	}
	return kv.Entry{
		Key:       rest[n+m : keyEnd : keyEnd],
		Value:     rest[keyEnd:end:end],
		Tombstone: packed&1 != 0,
	}, int(end), true
}

// evenKey returns a key of an even block; nil for a mixed block.
func (b block) evenKey(i int) []byte {
	at := blockHeaderBytes + i*b.keyBytes
	return b.data[at : at+b.keyBytes : at+b.keyBytes]
}

// entry returns an entry. ok is false only if the block was damaged after its
// verification.
func (b block) entry(i int) (e kv.Entry, ok bool) {
	if b.keyBytes == 0 {
		e, _, ok := b.entryAt(int(order.Uint32(b.data[blockHeaderBytes+4*i:])))
		return e, ok
	}
	at := blockHeaderBytes + b.count*b.keyBytes + i*b.valueBytes
	return kv.Entry{Key: b.evenKey(i), Value: b.data[at : at+b.valueBytes : at+b.valueBytes]}, true
}

// eachKey calls fn with all keys of a verified block.
func (b block) eachKey(fn func(key []byte)) {
	if b.keyBytes == 0 {
		for i := range b.count {
			fn(b.key(i))
		}
		return
	}
	keys := b.data[blockHeaderBytes : blockHeaderBytes+b.count*b.keyBytes]
	for ; len(keys) > 0; keys = keys[b.keyBytes:] {
		fn(keys[:b.keyBytes:b.keyBytes])
	}
}

// appendEntries appends all entries of a verified block.
func (b block) appendEntries(dst []kv.Entry) []kv.Entry {
	if b.keyBytes == 0 {
		for i := range b.count {
			e, _ := b.entry(i)
			dst = append(dst, e)
		}
		return dst
	}
	keys := b.data[blockHeaderBytes:]
	values := keys[b.count*b.keyBytes:]
	for range b.count {
		dst = append(dst, kv.Entry{Key: keys[:b.keyBytes:b.keyBytes], Value: values[:b.valueBytes:b.valueBytes]})
		keys, values = keys[b.keyBytes:], values[b.valueBytes:]
	}
	return dst
}

func (b block) key(i int) []byte {
	if b.keyBytes > 0 {
		return b.evenKey(i)
	}
	e, _ := b.entry(i)
	return e.Key
}

// search returns the index of the first entry with a key of at least key, or count, and
// whether the keys are equal.
func (b block) search(key []byte) (index int, found bool) {
	if b.keyBytes == 8 && len(key) == 8 {
		return b.searchWords(binary.BigEndian.Uint64(key))
	}
	low, high := 0, b.count
	for low < high {
		middle := int(uint(low+high) >> 1)
		switch c := bytes.Compare(b.key(middle), key); {
		case c < 0:
			low = middle + 1
		case c == 0:
			return middle, true
		default:
			high = middle
		}
	}
	return low, false
}

// searchWords is search for an even block with keys of eight bytes. It is branch-free:
// the branch would be unpredictable.
func (b block) searchWords(key uint64) (index int, found bool) {
	keys := b.data[blockHeaderBytes : blockHeaderBytes+8*b.count]
	low := 0
	for n := b.count; n > 0; {
		half := (n + 1) >> 1
		if next := low + half; binary.BigEndian.Uint64(keys[8*next-8:]) < key {
			low = next
		}
		n -= half
	}
	return low, low < b.count && binary.BigEndian.Uint64(keys[8*low:]) == key
}
