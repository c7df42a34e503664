package lsm

import (
	"bytes"
	"math/bits"
	"sort"

	"docstore/internal/prefetch"
)

// tableIndex finds the block of a key. It consists of the mapped index of a table and
// of buckets in memory, which take four bytes for two to four blocks.
//
// The prefix common to all keys of the table is left out. A record has the next eight
// bytes as a number, its prefix. For each value of the upper bits of a prefix, starting
// at the smallest key's, buckets has the first block whose last key has at least these
// bits. With evenly distributed keys, find reads one record; otherwise more blocks, at
// worst all, share their upper bits, and find uses binary search.
//
// Records and keys are mapped and can be damaged after parseIndex has checked them. So
// all accesses are bounds-checked, and a result is only a hint: the block itself proves
// that it is the right one.
type tableIndex struct {
	records []byte
	keys    []byte // the last key of each block, concatenated
	blocks  int
	shared  int    // length of the prefix common to all keys
	least   uint64 // prefix of the smallest key
	// greatest is the prefix of the greatest key, the last block's last key.
	greatest uint64
	shift    uint
	buckets  []uint32
}

// commonPrefix returns the length of the common prefix of two keys, and so of all keys
// between them.
func commonPrefix(a, b []byte) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func (x *tableIndex) prefix(i int) uint64      { return order.Uint64(x.records[indexRecordBytes*i:]) }
func (x *tableIndex) blockOffset(i int) uint64 { return order.Uint64(x.records[indexRecordBytes*i+8:]) }
func (x *tableIndex) keyEnd(i int) uint64      { return order.Uint64(x.records[indexRecordBytes*i+16:]) }

// lastKey returns the last key of a block; nil if the index is damaged there.
func (x *tableIndex) lastKey(i int) []byte {
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
func parseIndex(index []byte, blocksEnd uint64, minKey, maxKey []byte) (x tableIndex, reason string) {
	if len(index) < indexHeaderBytes {
		return x, "truncated index"
	}
	count := uint64(order.Uint32(index))
	if count == 0 || count > uint64(len(index)-indexHeaderBytes)/indexRecordBytes {
		return x, "index with an impossible number of blocks"
	}
	keysAt := indexHeaderBytes + count*indexRecordBytes
	x = tableIndex{
		records: index[indexHeaderBytes:keysAt], keys: index[keysAt:],
		blocks: int(count), shared: commonPrefix(minKey, maxKey),
	}
	if uint64(order.Uint32(index[4:])) != uint64(x.shared) {
		return x, "index with a wrong length of the common prefix"
	}
	offset, keyEnd := uint64(tableHeaderBytes), uint64(0)
	last := minKey
	for i := range x.blocks {
		gotOffset, gotEnd := x.blockOffset(i), x.keyEnd(i)
		inPlace := gotOffset == offset
		if i > 0 {
			inPlace = gotOffset >= offset+blockHeaderBytes && gotOffset < blocksEnd
		}
		if !inPlace || gotEnd < keyEnd || gotEnd > uint64(len(x.keys)) || gotEnd-keyEnd > MaxKeyBytes {
			return x, "index with a record out of place"
		}
		key := x.keys[keyEnd:gotEnd]
		offset, keyEnd = gotOffset, gotEnd
		if c := bytes.Compare(last, key); c > 0 || c == 0 && i > 0 || bytes.Compare(key, maxKey) > 0 {
			return x, "index with keys out of order"
		}
		if x.prefix(i) != keyPrefix(key[x.shared:]) {
			return x, "index with a wrong prefix"
		}
		last = key
	}
	if keyEnd != uint64(len(x.keys)) || !bytes.Equal(last, maxKey) {
		return x, "index with a wrong end"
	}
	x.least, x.greatest = keyPrefix(minKey[x.shared:]), keyPrefix(maxKey[x.shared:])
	x.fillBuckets()
	return x, ""
}

func (x *tableIndex) fillBuckets() {
	width := bits.Len64(x.greatest - x.least)
	x.shift = uint(max(0, width-bits.Len(uint(x.blocks))+1))
	x.buckets = make([]uint32, x.bucket(x.greatest)+1)
	filled := 0
	for i := range x.blocks {
		prefix := min(max(x.prefix(i), x.least), x.greatest)
		for b := x.bucket(prefix); filled <= b; filled++ {
			x.buckets[filled] = uint32(i)
		}
	}
}

func (x *tableIndex) bucket(prefix uint64) int { return int((prefix - x.least) >> x.shift) }

// place returns the prefix of a key, and whether the key is between the smallest and
// greatest key of the table. If not, the prefix is undefined.
func (r *tableReader) place(key []byte) (prefix uint64, covered bool) {
	rest := key
	if n := r.shared; n > 0 {
		if len(key) < n || !bytes.Equal(key[:n], r.minKey[:n]) {
			return 0, false
		}
		rest = key[n:]
	}
	prefix = keyPrefix(rest)
	if prefix > r.least && prefix < r.greatest {
		return prefix, true
	}
	return prefix, bytes.Compare(key, r.minKey) >= 0 && bytes.Compare(key, r.maxKey) <= 0
}

// find returns the first block whose last key is at least key, for a key with a place.
// It is a branch-free binary search: the branch would be unpredictable.
func (x *tableIndex) find(prefix uint64, key []byte) int {
	b := x.bucket(prefix)
	low, high := int(x.buckets[b]), x.blocks-1
	if b+1 < len(x.buckets) {
		high = int(x.buckets[b+1])
	}
	for n := high - low; n > 0; {
		half := (n + 1) >> 1
		if next := low + half; x.prefix(next-1) < prefix {
			low = next
		}
		n -= half
	}
	if x.prefix(low) != prefix {
		return low
	}
	// Several blocks may end with keys of this prefix.
	if low == x.blocks-1 || bytes.Compare(x.lastKey(low), key) >= 0 {
		return low
	}
	return low + 1 + sort.Search(x.blocks-1-low-1, func(i int) bool {
		return bytes.Compare(x.lastKey(low+1+i), key) >= 0
	})
}

// prefetchRecord prefetches the records that find reads for a prefix.
func (x *tableIndex) prefetchRecord(prefix uint64) {
	first := indexRecordBytes * int(x.buckets[x.bucket(prefix)])
	prefetch.Bytes(x.records[first:min(first+2*indexRecordBytes, len(x.records))])
}
