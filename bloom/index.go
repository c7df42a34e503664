package bloom

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sort"
)

// index describes the pages of a filter: their offsets and key ranges.
type index struct {
	entries []entry
	// Page i covers the keys from separator i up to but excluding separator i+1. The
	// first separator is empty; the others increase.
	separators []byte   // concatenated
	ends       []int    // end offset of each separator
	shared     int      // length of the prefix common to all non-empty separators
	prefixes   []uint64 // the first 8 bytes after the common prefix
	// Bucket b begins at the prefix prefixes[1] + b<<shift and holds the last page with
	// a smaller prefix. With evenly distributed keys find examines one or two pages
	// from there; otherwise it uses binary search.
	buckets []uint32
	shift   uint
}

// entry describes a page.
type entry struct {
	offset int64 // in the section
	bytes  uint32
	keys   uint32
	crc    uint32
}

// append appends the encoded entry to dst.
func (e entry) append(dst, separator []byte) []byte {
	dst = order.AppendUint64(dst, uint64(e.offset))
	dst = order.AppendUint32(dst, e.bytes)
	dst = order.AppendUint32(dst, e.keys)
	dst = order.AppendUint32(dst, e.crc)
	dst = order.AppendUint32(dst, uint32(len(separator)))
	return append(dst, separator...)
}

// decodeIndex decodes the index b of a filter with the given trailer and pagesBytes
// bytes of pages. On error, offset is the position in b.
func decodeIndex(b []byte, t trailer, pagesBytes int64) (x index, offset int, err error) {
	if most := len(b) / entryHeaderBytes; uint64(t.pages) > uint64(most) {
		return index{}, 0, fmt.Errorf("%d pages in an index of %d bytes", t.pages, len(b))
	}
	pages := int(t.pages)
	x = index{
		entries:    make([]entry, 0, pages),
		separators: make([]byte, 0, len(b)-pages*entryHeaderBytes),
		ends:       make([]int, 0, pages),
		prefixes:   make([]uint64, 0, pages),
	}
	var next int64
	var keys uint64
	for i := range pages {
		e, separator, ok := decodeEntry(b[offset:])
		if !ok {
			return index{}, offset, fmt.Errorf("the entry of page %d exceeds the index", i)
		}
		if err := checkEntry(e, t, next, i == pages-1); err != nil {
			return index{}, offset, fmt.Errorf("page %d: %w", i, err)
		}
		if i == 0 && len(separator) > 0 || i > 0 && bytes.Compare(x.separator(i-1), separator) >= 0 {
			return index{}, offset, fmt.Errorf("page %d: separator is not greater than the previous one", i)
		}
		x.entries = append(x.entries, e)
		x.separators = append(x.separators, separator...)
		x.ends = append(x.ends, len(x.separators))
		offset += entryHeaderBytes + len(separator)
		next += int64(e.bytes)
		keys += uint64(e.keys)
	}
	switch {
	case offset != len(b):
		return index{}, offset, fmt.Errorf("%d bytes after the last entry", len(b)-offset)
	case next != pagesBytes:
		return index{}, offset, fmt.Errorf("pages of %d bytes, want %d", next, pagesBytes)
	case keys != t.keys:
		return index{}, offset, fmt.Errorf("pages of %d keys, want %d", keys, t.keys)
	}
	x.fillPrefixes()
	return x, 0, nil
}

func decodeEntry(b []byte) (e entry, separator []byte, ok bool) {
	if len(b) < entryHeaderBytes {
		return entry{}, nil, false
	}
	length := order.Uint32(b[entrySeparatorLengthAt:])
	if uint64(length) > uint64(len(b)-entryHeaderBytes) {
		return entry{}, nil, false
	}
	e = entry{
		offset: int64(order.Uint64(b[entryOffsetAt:])),
		bytes:  order.Uint32(b[entryBytesAt:]),
		keys:   order.Uint32(b[entryKeysAt:]),
		crc:    order.Uint32(b[entryCRCAt:]),
	}
	return e, b[entryHeaderBytes:][:length], true
}

// checkEntry validates an entry. next is the end of the previous page.
func checkEntry(e entry, t trailer, next int64, last bool) error {
	if e.offset != next {
		return fmt.Errorf("offset %d, want %d", e.offset, next)
	}
	folded := last && e.bytes >= wordBytes && e.bytes < t.pageBytes && e.bytes&(e.bytes-1) == 0
	if e.bytes != t.pageBytes && !folded {
		return fmt.Errorf("%d bytes, want %d", e.bytes, t.pageBytes)
	}
	if e.keys == 0 {
		return fmt.Errorf("no keys")
	}
	return nil
}

func (x *index) separator(i int) []byte {
	start := 0
	if i > 0 {
		start = x.ends[i-1]
	}
	return x.separators[start:x.ends[i]]
}

func (x *index) fillPrefixes() {
	pages := len(x.entries)
	if pages > 1 {
		first, last := x.separator(1), x.separator(pages-1)
		for x.shared < min(len(first), len(last)) && first[x.shared] == last[x.shared] {
			x.shared++
		}
	}
	for i := range pages {
		x.prefixes = append(x.prefixes, prefix(x.separator(i)[min(i, 1)*x.shared:]))
	}
	if pages < 2 {
		return
	}
	span := x.prefixes[pages-1] - x.prefixes[1]
	x.shift = uint(max(0, bits.Len64(span)-bits.Len(uint(pages))))
	x.buckets = make([]uint32, span>>x.shift+2)
	page := 0
	for b := range x.buckets {
		for page+1 < pages && (x.prefixes[page+1]-x.prefixes[1])>>x.shift < uint64(b) {
			page++
		}
		x.buckets[b] = uint32(page)
	}
}

// find returns the page that covers key. The filter must have a page.
func (x *index) find(key []byte) int {
	if x.shared > 0 {
		switch bytes.Compare(key[:min(len(key), x.shared)], x.separators[:x.shared]) {
		case -1:
			return 0
		case 1:
			return len(x.prefixes) - 1
		}
		key = key[x.shared:]
	}
	p := prefix(key)
	if len(x.prefixes) < 2 || p < x.prefixes[1] {
		return 0
	}
	b := min((p-x.prefixes[1])>>x.shift, uint64(len(x.buckets)-2))
	from := int(x.buckets[b])
	for n := int(x.buckets[b+1]) - from + 1; n > 1; {
		half := n / 2
		if next := from + half; x.prefixes[next] <= p {
			from = next
		}
		n -= half
	}
	if x.prefixes[from] != p {
		return from
	}
	// Several separators can share this prefix.
	first, _ := slices.BinarySearch(x.prefixes[1:], p)
	return first + sort.Search(from-first, func(i int) bool {
		return bytes.Compare(x.separator(first + 1 + i)[x.shared:], key) > 0
	})
}

// rank returns the position of a key among the pages: page 2 begins at 2. A key inside
// a page counts as its middle.
func (x *index) rank(key []byte) float64 {
	i := x.find(key)
	if bytes.Equal(x.separator(i), key) {
		return float64(i)
	}
	return float64(i) + 0.5
}

// memory returns the bytes of memory used by a filter's index, page pointers and page
// counters.
func (x *index) memory() int64 {
	const perPage = 24 + 8 + 8 + 8 + 12 + 8 + 1 // entry, end, prefix, pointer, sample, tally, broken
	return int64(len(x.entries)*perPage + cap(x.separators) + 4*len(x.buckets))
}

// prefix returns the first 8 bytes of a key as a number with the same order.
func prefix(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var b [8]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:])
}
