package table

import (
	"bytes"
	"math/bits"
	"sort"

	"docstore/internal/prefetch"
	"docstore/lsm/internal/kv"
)

// blockIndex finds the block of a key. It consists of the mapped index of a table and,
// in memory, of a word for each block and buckets, four bytes for four to eight blocks.
//
// The prefix common to all keys of the table is left out. A record has the next eight
// bytes as a number, its prefix. A block's word has the upper bits of its prefix,
// relative to the smallest key's, and below them the block's offset. For each value of
// the uppermost of these bits, buckets has the first block whose last key has at least
// these bits. With evenly distributed keys, find reads one or two cache lines of words;
// otherwise several blocks share the upper bits, and find compares their records.
//
// Records and keys are mapped and can be damaged after parseIndex has checked them. So
// all accesses are bounds-checked, and a result is only a hint: the block itself proves
// that it is the right one.
type blockIndex struct {
	records []byte
	keys    []byte // the last key of each block, concatenated
	blocks  int
	minKey  []byte
	maxKey  []byte
	shared  int    // length of the prefix common to all keys
	least   uint64 // prefix of the smallest key
	// greatest is the prefix of the greatest key, the last block's last key.
	greatest uint64
	words    []uint64 // of each block: scaled prefix | offset
	scale    uint     // a prefix less least, shifted left by it, is scaled
	offsets  uint64   // mask of the offset
	buckets  []uint32 // and the last block, repeated
	shift    uint     // a word shifted right by it is the bucket
}

// blocksPerBucket is the minimum of the mean number of blocks in a bucket; the maximum
// is twice as large.
const blocksPerBucket = 4

func (x *blockIndex) prefix(i int) uint64 { return order.Uint64(x.records[indexRecordBytes*i:]) }
func (x *blockIndex) recordOffset(i int) uint64 {
	return order.Uint64(x.records[indexRecordBytes*i+8:])
}
func (x *blockIndex) keyEnd(i int) uint64 { return order.Uint64(x.records[indexRecordBytes*i+16:]) }

// word returns the word of a block at offset 0 whose last key has the prefix.
func (x *blockIndex) word(prefix uint64) uint64 { return (prefix - x.least) << x.scale &^ x.offsets }

func (x *blockIndex) blockOffset(i int) uint64 { return x.words[i] & x.offsets }

// lastKey returns the last key of a block; nil if the index is damaged there.
func (x *blockIndex) lastKey(i int) []byte {
	start, end := uint64(0), x.keyEnd(i)
	if i > 0 {
		start = x.keyEnd(i - 1)
	}
	if start > end || end > uint64(len(x.keys)) {
		return nil
	}
	return x.keys[start:end]
}

// parseIndex checks the index of a table whose blocks end at blocksEnd and whose keys
// are between minKey and maxKey.
func parseIndex(index []byte, blocksEnd uint64, minKey, maxKey []byte) (x blockIndex, reason string) {
	if len(index) < indexHeaderBytes {
		return x, "truncated index"
	}
	count := uint64(order.Uint32(index))
	if count == 0 || count > uint64(len(index)-indexHeaderBytes)/indexRecordBytes {
		return x, "index with an impossible number of blocks"
	}
	keysAt := indexHeaderBytes + count*indexRecordBytes
	x = blockIndex{
		records: index[indexHeaderBytes:keysAt], keys: index[keysAt:],
		blocks: int(count), minKey: minKey, maxKey: maxKey, shared: kv.CommonPrefix(minKey, maxKey),
	}
	if uint64(order.Uint32(index[4:])) != uint64(x.shared) {
		return x, "index with a wrong length of the common prefix"
	}
	offset, keyEnd := uint64(headerBytes), uint64(0)
	last := minKey
	for i := range x.blocks {
		gotOffset, gotEnd := x.recordOffset(i), x.keyEnd(i)
		inPlace := gotOffset == offset
		if i > 0 {
			inPlace = gotOffset >= offset+blockHeaderBytes && gotOffset < blocksEnd
		}
		if !inPlace || gotEnd < keyEnd || gotEnd > uint64(len(x.keys)) || gotEnd-keyEnd > kv.MaxKeyBytes {
			return x, "index with a record out of place"
		}
		key := x.keys[keyEnd:gotEnd]
		offset, keyEnd = gotOffset, gotEnd
		if c := bytes.Compare(last, key); c > 0 || c == 0 && i > 0 || bytes.Compare(key, maxKey) > 0 {
			return x, "index with keys out of order"
		}
		if x.prefix(i) != kv.Prefix(key[x.shared:]) {
			return x, "index with a wrong prefix"
		}
		last = key
	}
	if keyEnd != uint64(len(x.keys)) || !bytes.Equal(last, maxKey) {
		return x, "index with a wrong end"
	}
	x.least, x.greatest = kv.Prefix(minKey[x.shared:]), kv.Prefix(maxKey[x.shared:])
	x.fillWords(blocksEnd)
	return x, ""
}

// fillWords fills words and buckets from checked records.
func (x *blockIndex) fillWords(blocksEnd uint64) {
	x.offsets = 1<<bits.Len64(blocksEnd) - 1
	x.scale = uint(bits.LeadingZeros64((x.greatest - x.least) | 1))
	x.words = make([]uint64, x.blocks)
	for i := range x.words {
		x.words[i] = x.word(x.prefix(i)) | x.recordOffset(i)
	}
	x.shift = uint(max(bits.Len64(blocksEnd), 64-bits.Len(uint(x.blocks/blocksPerBucket))))
	x.buckets = make([]uint32, 1<<(64-x.shift)+1)
	filled := 0
	for i, word := range x.words {
		for b := int(word >> x.shift); filled <= b; filled++ {
			x.buckets[filled] = uint32(i)
		}
	}
	for ; filled < len(x.buckets); filled++ {
		x.buckets[filled] = uint32(x.blocks - 1)
	}
}

// place returns the prefix of a key, and whether the key is between the smallest and
// greatest key of the table. If not, the prefix is undefined.
func (x *blockIndex) place(key []byte) (prefix uint64, covered bool) {
	rest := key
	if n := x.shared; n > 0 {
		if len(key) < n || !bytes.Equal(key[:n], x.minKey[:n]) {
			return 0, false
		}
		rest = key[n:]
	}
	prefix = kv.Prefix(rest)
	if prefix > x.least && prefix < x.greatest {
		return prefix, true
	}
	return prefix, bytes.Compare(key, x.minKey) >= 0 && bytes.Compare(key, x.maxKey) <= 0
}

// find returns the first block whose last key is at least key, for a key with a place.
func (x *blockIndex) find(prefix uint64, key []byte) int {
	word := x.word(prefix)
	b := word >> x.shift
	high := int(x.buckets[b+1])
	low := x.lowerBound(int(x.buckets[b]), high, word)
	if x.words[low]&^x.offsets != word {
		return low
	}
	// Several blocks may end with keys of these bits.
	high = x.lowerBound(low, high, word|x.offsets)
	return low + sort.Search(high-low, func(i int) bool {
		if p := x.prefix(low + i); p != prefix {
			return p > prefix
		}
		return bytes.Compare(x.lastKey(low+i), key) >= 0
	})
}

// lowerBound returns the first block from low to high whose word is at least word, or
// high. It is a branch-free binary search: the branch would be unpredictable.
func (x *blockIndex) lowerBound(low, high int, word uint64) int {
	for n := high - low; n > 0; {
		half := (n + 1) >> 1
		if next := low + half; x.words[next-1] < word {
			low = next
		}
		n -= half
	}
	return low
}

// prefetchWords prefetches the words that find reads for a prefix.
func (x *blockIndex) prefetchWords(prefix uint64) {
	b := x.word(prefix) >> x.shift
	prefetch.Of(&x.words[x.buckets[b]])
	prefetch.Of(&x.words[x.buckets[b+1]])
}
