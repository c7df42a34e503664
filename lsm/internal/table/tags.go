package table

import (
	"bytes"
	"hash/maphash"
	"math/bits"
	"sync/atomic"

	"docstore/internal/offheap"
)

// tags locate the entries of a block without a search: for each entry, in the order of the
// keys, one byte of the hash of its key. A lookup compares eight tags at a time, and then
// reads only the keys with the right tag: one and, in a block of 40 entries, 0.15 others. A
// binary search reads six keys, in more cache lines.
//
// Tags are kept in memory only. The first lookup in a block fills in those of the block, from
// the copy that verifies the block. A wrong tag, or none, costs time and never the answer:
// absence is confirmed in a copy.
//
// After the tags of a block there is its layout: the number of entries if it is an even block
// whose keys and values have the mean sizes of the table, else 0. It locates these entries
// without the block's header.
type tags struct {
	region  offheap.Region
	bytes   []byte // stride for each block: tags, 0 for no entry, and the layout
	stride  int    // a multiple of tagWord
	claimed bitmap // a lookup fills in the tags of the block, or has done so
	filled  bitmap // the tags of the block may be read
}

const (
	// tagWord is the number of tags that are compared together.
	tagWord = 8
	// maxStride bounds the tags of a block, whose positions are bytes.
	maxStride = 256
	// maxMatches is the maximum number of keys that are compared before a copy of the block
	// is searched instead.
	maxMatches = 8
)

// TagLimit bounds the memory of the tags of several tables.
type TagLimit struct {
	Bytes int64
	used  atomic.Int64
}

func (l *TagLimit) reserve(bytes int64) bool {
	if l.used.Add(bytes) <= l.Bytes {
		return true
	}
	l.release(bytes)
	return false
}

func (l *TagLimit) release(bytes int64) { l.used.Add(-bytes) }

// AddTags gives the table tags if it has none and Env.Tags permits it. The caller must have a
// reference, and must not call it concurrently.
func (r *Reader) AddTags() {
	stride := tagStride(r.blocks, r.Facts.Entries)
	bytes := tagBytes(r.blocks, stride)
	if r.tags.Load() != nil || stride > maxStride || !r.env.Tags.reserve(bytes) {
		return
	}
	region := offheap.New(r.blocks*stride, 0)
	r.tags.Store(&tags{
		region: region, bytes: region.Bytes(), stride: stride, claimed: newBitmap(r.blocks), filled: newBitmap(r.blocks),
	})
	r.env.CountIndex(bytes)
}

// dropTags releases the tags, which no lookup may use then.
func (r *Reader) dropTags() {
	if t := r.tags.Load(); t != nil {
		bytes := tagBytes(r.blocks, t.stride)
		t.region.Release()
		r.env.Tags.release(bytes)
		r.env.CountIndex(-bytes)
	}
}

// tagStride returns the bytes for a block, which may have an eighth more entries than the mean, and
// one more.
func tagStride(blocks int, entries uint64) int {
	mean := int(entries) / blocks
	return (mean + mean/8 + 1 + tagWord) / tagWord * tagWord
}

// tagBytes returns the memory of tags.
func tagBytes(blocks, stride int) int64 { return int64(blocks*stride) + 2*bitmapBytes(blocks) }

// fill fills in the tags and the layout of block i of a table, unless a lookup has begun to, or the
// block has too many entries.
func (t *tags) fill(i int, b block, mean *meanEntry) {
	layout := t.stride - 1
	if !t.claimed.add(i) || b.count > layout {
		return
	}
	of, at := t.of(i), 0
	if uint64(b.keyBytes) == mean.keyBytes && uint64(b.valueBytes) == mean.valueBytes && b.keyBytes > 0 {
		of[layout] = byte(b.count)
	}
	if isShort(b.keyBytes) {
		for keys := b.data[blockHeaderBytes:]; at < b.count; keys = keys[b.keyBytes:] {
			of[at] = shortTag(keys[:b.keyBytes])
			at++
		}
	} else {
		b.eachKey(func(key []byte) {
			of[at] = tagOf(key)
			at++
		})
	}
	t.filled.add(i)
}

// of returns the tags and the layout of block i.
func (t *tags) of(i int) []byte { return t.bytes[i*t.stride : (i+1)*t.stride] }

// tagSeed and tagKeys make tags unpredictable, so keys with the same tag cannot be chosen.
var (
	tagSeed = maphash.MakeSeed()
	tagKeys = [2]uint64{maphash.Bytes(tagSeed, []byte{0}), maphash.Bytes(tagSeed, []byte{1})}
)

// tagOf returns the tag of a key, at least 1.
func tagOf(key []byte) byte {
	if isShort(len(key)) {
		return shortTag(key)
	}
	return scaleTag(uint32(maphash.Bytes(tagSeed, key)))
}

// isShort reports whether the first and the last eight bytes of a key are all of it.
func isShort(keyBytes int) bool { return keyBytes >= 8 && keyBytes <= 16 }

// shortTag is tagOf for a short key. It multiplies like wyhash, in a third of the time of
// maphash.
func shortTag(key []byte) byte {
	high, low := bits.Mul64(order.Uint64(key)^tagKeys[0], order.Uint64(key[len(key)-8:])^tagKeys[1])
	return scaleTag(uint32(high ^ low))
}

func scaleTag(hash uint32) byte { return byte(uint64(hash)*255>>32) + 1 }

// equalTags returns a number whose byte i has its highest bit set if tag i of eight is tag.
func equalTags(eight []byte, tag byte) uint64 {
	const low = 0x7f7f7f7f7f7f7f7f
	x := order.Uint64(eight) ^ uint64(tag)*0x0101010101010101
	return ^(x&low + low | x | low)
}

// matches are the entries of a block that have the tag of a key.
type matches struct {
	entries [maxMatches]uint8
	count   int
	layout  int // of the block
}

// match sets m to the entries of block i that have a tag, and prefetches them.
func (r *Reader) match(m *matches, t *tags, i int, tag byte) {
	of := t.of(i)
	start := r.blockOffset(i)
	m.count, m.layout = 0, int(of[len(of)-1])
	for at := 0; at < len(of); at += tagWord {
		for equal := equalTags(of[at:], tag); equal != 0 && m.count < maxMatches; equal &= equal - 1 {
			entry := at + bits.TrailingZeros64(equal)/8
			if m.layout > 0 && entry >= m.layout {
				return // the layout equals the tag, or a tag is wrong
			}
			r.prefetchEntry(start, entry, m.layout)
			m.entries[m.count] = uint8(entry)
			m.count++
		}
	}
}

// pick returns the value of a key, as a slice of the mapping, if m has its entry. Otherwise
// the caller must confirm that the key is absent.
func (r *Reader) pick(m *matches, i int, key []byte) (value []byte, ok bool) {
	switch {
	case m.count == 0:
		return nil, false
	case m.layout == 0:
		return r.pickWithoutLayout(m, i, key)
	}
	start := r.blockOffset(i)
	for _, at := range m.entries[:m.count] {
		if k, v := r.meanEntryAt(start, int(at), m.layout); bytes.Equal(k, key) {
			return v, true
		}
	}
	return nil, false
}

// pickWithoutLayout is pick for a block without a layout, whose header it reads.
func (r *Reader) pickWithoutLayout(m *matches, i int, key []byte) (value []byte, ok bool) {
	start, end := r.blockRange(i)
	b, fault := parseBlock(r.data[start:end], r.mean.entry)
	if fault != nil {
		return nil, false
	}
	for _, at := range m.entries[:m.count] {
		if int(at) < b.count && bytes.Equal(b.key(int(at)), key) {
			e, ok := b.entry(int(at))
			return e.Value, ok && !e.Tombstone
		}
	}
	return nil, false
}

// meanEntryAt returns an entry of the block at start that has the layout.
func (r *Reader) meanEntryAt(start uint64, i, layout int) (key, value []byte) {
	m := &r.mean
	key = r.data[start+blockHeaderBytes+uint64(i)*m.keyBytes:][:m.keyBytes]
	value = r.data[start+blockHeaderBytes+uint64(layout)*m.keyBytes+uint64(i)*m.valueBytes:][:m.valueBytes:m.valueBytes]
	return key, value
}

// A bitmap has a bit for each block of a table.
type bitmap []atomic.Uint32

func newBitmap(blocks int) bitmap { return make(bitmap, (blocks+31)/32) }

func bitmapBytes(blocks int) int64 { return 4 * int64((blocks+31)/32) }

func (b bitmap) has(i int) bool { return b[i/32].Load()&(1<<(i%32)) != 0 }

// add sets bit i and reports whether it was not set.
func (b bitmap) add(i int) bool { return b[i/32].Or(1<<(i%32))&(1<<(i%32)) == 0 }
