package bloom

import (
	"bytes"
	"fmt"
	"slices"

	bloomv3 "github.com/bits-and-blooms/bloom/v3"

	"docstore/internal/checksum"
	"docstore/internal/invariants"
)

// Builder makes a filter from keys that come in ascending order. It holds the
// finished pages, about a byte a key with the default options, until Flush or
// Finish hands them out.
type Builder struct {
	options Options
	hashes  int
	perPage int // keys in a full page

	words     []uint64             // the bits of the page being filled
	oracle    *bloomv3.BloomFilter // the same by way of the library, where invariants are checked
	pageKeys  int
	separator []byte // of the page being filled

	last    []byte // the last key of a full page
	keys    uint64
	count   uint32 // finished pages
	flushed int64  // bytes of the finished pages that were handed out
	pages   []byte // the other finished pages
	index   []byte // the entries of all of them
}

// NewBuilder returns an empty Builder. It panics if the options are not valid:
// see Options.Validate.
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

// Add puts a key into the filter. Keys come in ascending order, each once; the
// filter would say "no" to those that do not. Only builds that check invariants
// (see internal/invariants) notice, and panic. So does every build at a key larger
// than MaxKeyBytes.
func (b *Builder) Add(key []byte) {
	if len(key) > MaxKeyBytes {
		panic(fmt.Sprintf("bloom: key of %d bytes, want at most %d", len(key), MaxKeyBytes))
	}
	if invariants.Enabled && b.keys > 0 && bytes.Compare(key, b.last) <= 0 {
		panic("bloom: keys do not come in ascending order")
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

// separate returns the shortest beginning of key that is above last, which is
// less than key.
func separate(last, key []byte) []byte {
	n := 0
	for n < len(last) && last[n] == key[n] {
		n++
	}
	return key[:n+1]
}

// finishPage encodes the page being filled and begins the next.
func (b *Builder) finishPage() {
	if invariants.Enabled {
		if !slices.Equal(b.words, b.oracle.BitSet().Words()) {
			panic("bloom: a page is not the one that bits-and-blooms/bloom/v3 makes")
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

// Flush appends the finished pages to dst, returns it and forgets them: they are
// the beginning of the encoded filter, or follow what Flush returned before. So a
// large filter can be written while its keys stream out.
func (b *Builder) Flush(dst []byte) []byte {
	dst = append(dst, b.pages...)
	b.flushed += int64(len(b.pages))
	b.pages = b.pages[:0]
	return dst
}

// Finish appends the encoded filter, or what Flush has left of it, to dst and
// returns it. The Builder is then empty again, ready for another filter.
func (b *Builder) Finish(dst []byte) []byte {
	if b.pageKeys > 0 {
		b.finishPage()
	}
	dst = b.Flush(dst)
	dst = append(dst, b.index...)
	dst = trailer{
		indexCRC:   checksum.Of(b.index),
		indexBytes: uint64(len(b.index)),
		keys:       b.keys,
		pages:      b.count,
		pageBytes:  uint32(b.options.PageBytes),
		hashes:     uint16(b.hashes),
	}.append(dst)

	b.separator, b.last = b.separator[:0], b.last[:0]
	b.index = b.index[:0]
	b.keys, b.count, b.flushed = 0, 0, 0
	return dst
}
