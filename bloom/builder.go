package bloom

import (
	"bytes"
	"fmt"
	"slices"

	bloomv3 "github.com/bits-and-blooms/bloom/v3"

	"docstore/internal/checksum"
	"docstore/internal/invariants"
)

// Builder builds a filter from keys in ascending order. It holds the finished pages,
// about a byte per key with the default options, until Flush or Finish, and a hundredth of
// that for their index, until FlushIndex or Finish.
type Builder struct {
	options Options
	hashes  int
	perPage int // keys in a full page

	words     []uint64             // the bits of the page being filled
	oracle    *bloomv3.BloomFilter // the same page built by the library, in invariant builds
	pageKeys  int
	separator []byte // of the current page

	last    []byte // the last key of a full page
	keys    uint64
	count   uint32 // finished pages
	flushed int64  // bytes of pages returned
	pages   []byte // finished pages that were not flushed
	index   []byte // index entries that were not flushed

	indexCRC   uint32 // of the index entries returned
	indexBytes uint64
}

// NewBuilder returns an empty Builder. It panics if opts are invalid: see
// Options.Validate.
func NewBuilder(opts *Options) *Builder {
	if err := opts.Validate(); err != nil {
		panic(err)
	}
	o := opts.withDefaults()
	k := hashes(o.FalsePositiveRate)
	b := &Builder{
		options: o,
		hashes:  k,
		perPage: capacity(8*o.PageBytes, k, o.FalsePositiveRate),
		words:   make([]uint64, o.PageBytes/wordBytes),
	}
	if invariants.Enabled {
		b.oracle = bloomv3.New(uint(8*o.PageBytes), uint(k))
	}
	return b
}

// Add adds a key. Keys must be unique and in ascending order: otherwise the filter
// answers "no" for some of them. Only invariant builds (see internal/invariants) detect
// this and panic. Add panics on a key larger than MaxKeyBytes.
func (b *Builder) Add(key []byte) {
	if len(key) > MaxKeyBytes {
		panic(fmt.Sprintf("bloom: key of %d bytes, want at most %d", len(key), MaxKeyBytes))
	}
	if invariants.Enabled && b.keys > 0 && bytes.Compare(key, b.last) <= 0 {
		panic("bloom: keys are not in ascending order")
	}
	if b.pageKeys == b.perPage {
		b.finishPage()
		b.separator = append(b.separator[:0], separate(b.last, key)...)
	}
	setBits(b.words, HashKey(key), uint64(b.hashes))
	if invariants.Enabled {
		b.oracle.Add(key)
	}
	if b.pageKeys++; b.pageKeys == b.perPage || invariants.Enabled {
		b.last = append(b.last[:0], key...)
	}
	b.keys++
}

// separate returns the shortest prefix of key that is greater than last. last must be
// less than key.
func separate(last, key []byte) []byte {
	n := 0
	for n < len(last) && last[n] == key[n] {
		n++
	}
	return key[:n+1]
}

// finishPage encodes the current page and begins the next.
func (b *Builder) finishPage() {
	if invariants.Enabled {
		if !slices.Equal(b.words, b.oracle.BitSet().Words()) {
			panic("bloom: the page differs from that of bits-and-blooms/bloom/v3")
		}
		b.oracle.ClearAll()
	}
	words := b.words
	for len(words) > 1 && b.pageKeys <= capacity(32*len(words), b.hashes, b.options.FalsePositiveRate) {
		words = fold(words)
	}
	start := len(b.pages)
	b.pages = appendWords(b.pages, words)
	e := entry{
		offset: b.flushed + int64(start),
		bytes:  uint32(len(b.pages) - start),
		keys:   uint32(b.pageKeys),
		crc:    checksum.Of(b.pages[start:]),
	}
	b.index = e.append(b.index, b.separator)
	b.count++
	b.pageKeys = 0
	clear(b.words)
}

// Flush appends the finished pages to dst, returns it and discards them. The results of
// consecutive calls are consecutive parts of the encoded filter, so a large filter can
// be written while its keys are added.
func (b *Builder) Flush(dst []byte) []byte {
	dst = append(dst, b.pages...)
	b.flushed += int64(len(b.pages))
	b.pages = b.pages[:0]
	return dst
}

// FlushIndex is Flush for the index entries of the finished pages, which follow the last
// page in the encoded filter.
func (b *Builder) FlushIndex(dst []byte) []byte {
	dst = append(dst, b.index...)
	b.indexCRC = checksum.Update(b.indexCRC, b.index)
	b.indexBytes += uint64(len(b.index))
	b.index = b.index[:0]
	return dst
}

// FinishPages is Flush after the last Add: it also ends the last page.
func (b *Builder) FinishPages(dst []byte) []byte {
	if b.pageKeys > 0 {
		b.finishPage()
	}
	return b.Flush(dst)
}

// Finish appends the rest of the encoded filter to dst and returns it. The Builder is
// then empty and can build another filter.
func (b *Builder) Finish(dst []byte) []byte {
	dst = b.FinishPages(dst)
	dst = b.FlushIndex(dst)
	dst = trailer{
		indexCRC:   b.indexCRC,
		indexBytes: b.indexBytes,
		keys:       b.keys,
		pages:      b.count,
		pageBytes:  uint32(b.options.PageBytes),
		hashes:     uint16(b.hashes),
	}.append(dst)

	b.separator, b.last = b.separator[:0], b.last[:0]
	b.keys, b.count, b.flushed, b.indexCRC, b.indexBytes = 0, 0, 0, 0, 0
	return dst
}
