package codec

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"sync"
)

// An encoder for S2 with a dictionary. Decoding takes most of a client's time, and this
// time depends on the number of elements more than on the bytes. So the encoder finds a long
// match at each position, and then the cheapest sequence of elements, where a cost is the
// number of bytes and an extra for each element: a shortest path, computed from the end of
// the document backwards. Compared with the library's "better" level it stores 4 %
// less in two thirds of the elements.
const (
	// s2MaxOptimal is the length of the longest document that is encoded here. It keeps all
	// positions in 16 bits, and copies from the dictionary within their reach.
	s2MaxOptimal = math.MaxUint16
	// s2MaxOffset is the largest offset of a copy in two bytes.
	s2MaxOffset = math.MaxUint16
	// s2NearOffset limits the offset, and s2NearLength the length, of a copy of kind
	// s2Near; s2FarLength limits that of kind s2Far.
	s2NearOffset = 1<<11 - 1
	s2NearLength = 11
	s2FarLength  = 64
	// s2MinMatch is the length of the shortest match.
	s2MinMatch = 4

	// s2HashedBytes is the length of the strings in the hash tables. Shorter matches cost
	// more than they save, unless they continue another one.
	s2HashedBytes = 6
	// s2HashBits is the number of bits of a hash. The tables use the upper bits.
	s2HashBits       = 24
	s2DictionaryBits = 15 // of hashes in the table of a dictionary
	s2DocumentBits   = 12 // of hashes in the table of a document
	s2FilterBits     = 12 // of hashes in the filter of a dictionary; the other bits select bits of a word
	// s2SearchShare: inside a match, the dictionary is searched again when this share of the
	// match is left.
	s2SearchShare = 2
	// s2MaxSearched is the length of the longest match that a search of the dictionary finds,
	// and the largest number of bytes that a match is extended backwards. It bounds the
	// time for documents and dictionaries that repeat themselves.
	s2MaxSearched = 1 << 10

	// Costs of an element besides its bytes, in bytes.
	s2CopyCost    = 3
	s2LiteralCost = 1
)

// s2Encoder encodes documents of up to s2MaxOptimal bytes with a dictionary. It is safe for
// concurrent use.
type s2Encoder struct {
	dictionary []byte
	offset     int // of a repeat before any copy
	// The positions of the dictionary, ordered by the hash of the string that begins there,
	// and those with the same hash by the rest of the dictionary from there. Those with
	// hash h are positions[starts[h]:starts[h+1]].
	starts    [1<<s2DictionaryBits + 1]uint32
	positions []uint16
	// A Bloom filter of the hashes that occur in the dictionary: two bits of a word for each.
	// It fits in the first-level cache, and passes 4 % of other hashes.
	filter [1 << s2FilterBits]uint64
}

// newS2Encoder takes a dictionary that s2.NewDict has accepted.
func newS2Encoder(dictionary []byte) *s2Encoder {
	repeat, n := binary.Uvarint(dictionary)
	content := dictionary[n:]
	e := &s2Encoder{dictionary: content, offset: len(content) - int(repeat)}
	hashes := make([]uint32, max(len(content)-s2LoadedBytes+1, 0))
	for i := range hashes {
		hash := s2Hash(content[i:])
		e.filter[hash>>(s2HashBits-s2FilterBits)] |= s2FilterMask(hash)
		hashes[i] = hash >> (s2HashBits - s2DictionaryBits)
		e.starts[hashes[i]+1]++
	}
	for h := range 1 << s2DictionaryBits {
		e.starts[h+1] += e.starts[h]
	}
	next := e.starts
	e.positions = make([]uint16, len(hashes))
	for i, h := range hashes {
		e.positions[next[h]] = uint16(i)
		next[h]++
	}
	for h := range 1 << s2DictionaryBits {
		slices.SortFunc(e.positions[e.starts[h]:e.starts[h+1]], func(a, b uint16) int {
			return bytes.Compare(e.from(a), e.from(b))
		})
	}
	return e
}

// from returns the string at a position of the dictionary.
func (e *s2Encoder) from(position uint16) []byte {
	return e.dictionary[position:min(int(position)+s2MaxSearched, len(e.dictionary))]
}

// s2LoadedBytes is the number of bytes that s2Hash loads.
const s2LoadedBytes = 8

// s2Hash hashes the first s2HashedBytes bytes to s2HashBits bits.
func s2Hash(b []byte) uint32 {
	const prime = 0x9e3779b185ebca87
	return uint32(binary.LittleEndian.Uint64(b) << (64 - 8*s2HashedBytes) * prime >> (64 - s2HashBits))
}

// has reports whether the dictionary may contain a string with this hash.
func (e *s2Encoder) has(hash uint32) bool {
	mask := s2FilterMask(hash)
	return e.filter[hash>>(s2HashBits-s2FilterBits)]&mask == mask
}

// s2FilterMask returns the bits of a hash in its word of the filter.
func s2FilterMask(hash uint32) uint64 { return 1<<(hash%64) | 1<<(hash/64%64) }

// s2Match says that document[begin:end] equals the bytes at an offset before. It is the match
// at each position from begin to the begin of the next match: a copy from there to end.
// Neither begins nor ends decrease from a match to the next.
type s2Match struct{ begin, end, offset uint16 }

// s2Rest is the cheapest encoding of the rest of a document: the bytes before from are a
// literal, and there the match of an index is copied.
type s2Rest struct {
	cost  int32
	match int32
	from  uint16
}

// s2Scratch is the memory of encode.
type s2Scratch struct {
	// matches are between two empty ones, at the beginning and the end of the document.
	matches []s2Match
	// By index of a match: the rest from its end, after it was copied, and from its begin, if the
	// element before is a literal.
	copied, inLiteral []s2Rest
	// recent has by hash the last position with it, below the number of the document.
	recent   [1 << s2DocumentBits]uint32
	document uint32
}

var s2Scratches = sync.Pool{New: func() any { return new(s2Scratch) }}

// encode appends the block of a document of at most s2MaxOptimal bytes.
func (e *s2Encoder) Encode(dst, document []byte) []byte {
	s := s2Scratches.Get().(*s2Scratch)
	defer s2Scratches.Put(s)
	e.match(s, document)
	s.plan()
	dst = binary.AppendUvarint(dst, uint64(len(document)))
	last := e.offset
	for at, rest := 0, s.copied[0]; at < len(document); {
		from := int(rest.from)
		if at < from {
			dst = appendS2Literal(dst, document[at:from])
		}
		m := s.matches[rest.match]
		if at = int(m.end); from < at {
			dst = appendS2Copy(dst, at-from, int(m.offset), last)
			last = int(m.offset)
		}
		rest = s.copied[rest.match]
	}
	return dst
}

// match finds long matches. Inside a match it searches the dictionary only if it may contain
// a longer one, and not at each position: a match that begins too late is extended
// backwards.
func (e *s2Encoder) match(s *s2Scratch, document []byte) {
	if s.document++; s.document == 1<<16 {
		clear(s.recent[:])
		s.document = 1
	}
	matches := s.matches[:0]
	matches = append(matches, s2Match{})
	hashable := len(document) - s2LoadedBytes
	end, offset := 0, 0 // of the match
	longer := false     // the dictionary may contain a longer match
	for at := 0; at <= hashable; {
		before := end - at
		hash := s2Hash(document[at:])
		if before < s2HashedBytes {
			longer = e.has(hash)
			if before < s2MinMatch {
				before, offset = s2MinMatch-1, 0
			}
		}
		length, found := before, offset
		if longer {
			length, found = e.search(document, at, hash, length, found)
		}
		length, found = s.searchRecent(document, at, hash, length, found)
		if length > before || found != offset {
			offset = found
			begin := at
			if length > before {
				end = at + length
				// A longer match contains the string that ends one byte after this one.
				last := end + 1 - s2HashedBytes
				longer = last <= hashable && e.has(s2Hash(document[last:]))
				begin -= e.lengthBefore(document, at, offset)
				for len(matches) > 1 && int(matches[len(matches)-1].begin) >= begin {
					matches = matches[:len(matches)-1]
				}
			}
			matches = append(matches, s2Match{uint16(begin), uint16(end), uint16(offset)})
		}
		at = max(at+1, end+1-max(length/s2SearchShare, s2HashedBytes))
	}
	n := uint16(len(document))
	matches = append(matches, s2Match{begin: n, end: n})
	s.matches = matches
}

// searchRecent returns the match with the last position in the document that has this hash,
// if it is longer than the given one, or as long and nearer. It stores the position.
func (s *s2Scratch) searchRecent(document []byte, at int, hash uint32, length, offset int) (int, int) {
	recent := &s.recent[hash>>(s2HashBits-s2DocumentBits)]
	if *recent>>16 == s.document {
		before := int(*recent & math.MaxUint16)
		if n := s2CommonLength(document[before:], document[at:]); n > length || n == length && at-before < offset {
			length, offset = n, at-before
		}
	}
	*recent = s.document<<16 | uint32(at)
	return length, offset
}

// lengthBefore returns by how many bytes a match at this position can begin earlier.
func (e *s2Encoder) lengthBefore(document []byte, at, offset int) int {
	source, from := document, at-offset
	if from < 0 {
		source, from = e.dictionary, from+len(e.dictionary)
	}
	n, limit := 0, min(at, from, s2MaxSearched)
	for n < limit && source[from-n-1] == document[at-n-1] {
		n++
	}
	return n
}

// search returns the longest match of the dictionary if it is longer than the given one. It
// is a binary search: the strings before and after the place of the rest of the document
// have the longest common prefixes with it, and the search visits both.
func (e *s2Encoder) search(document []byte, at int, hash uint32, length, offset int) (int, int) {
	hash >>= s2HashBits - s2DictionaryBits
	rest := document[at:min(at+s2MaxSearched, len(document))]
	for low, high := e.starts[hash], e.starts[hash+1]; low < high; {
		middle := (low + high) / 2
		candidate := e.from(e.positions[middle])
		n := s2CommonLength(candidate, rest)
		if back := at + len(e.dictionary) - int(e.positions[middle]); n > length && back <= s2MaxOffset {
			length, offset = n, back
		}
		if n == len(rest) {
			break
		}
		if n < len(candidate) && candidate[n] > rest[n] {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return length, offset
}

// s2CommonLength returns the length of the common prefix.
func s2CommonLength(a, b []byte) int {
	n := min(len(a), len(b))
	a, b = a[:n], b[:n]
	i := 0
	for ; i+8 <= n; i += 8 {
		if different := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); different != 0 {
			return i + bits.TrailingZeros64(different)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// plan chooses the elements from the matches, from the end of the document backwards. A copy
// reaches to the end of a match. So elements begin only at the ends of matches and, after a
// literal, where a copy is cheaper than one that begins a byte earlier: at the begin of
// a match, or where its rest needs a single element.
func (s *s2Scratch) plan() {
	last := len(s.matches) - 1
	s.copied = slices.Grow(s.copied[:0], last+1)[:last+1]
	s.inLiteral = slices.Grow(s.inLiteral[:0], last+1)[:last+1]
	end := s2Rest{match: int32(last), from: s.matches[last].end}
	s.copied[last], s.inLiteral[last] = end, end
	at := last // the match at the end of the match i
	for i := last - 1; i >= 0; i-- {
		m := s.matches[i]
		for s.matches[at].begin > m.end {
			at--
		}
		if at < last {
			s.copied[i] = s.afterCopy(at, int(m.end))
		} else {
			s.copied[i] = end
		}
		s.inLiteral[i] = s.afterLiteral(i, int(m.begin))
	}
}

// afterCopy returns the rest from a position of a match, if the element before has ended.
func (s *s2Scratch) afterCopy(match, at int) s2Rest {
	rest := s.inLiteral[match+1]
	if at+1 < int(s.matches[match+1].begin) {
		rest = s.afterLiteral(match, at+1)
	}
	rest.cost += 2 + s2LiteralCost
	return s.orCopy(rest, match, at)
}

// afterLiteral returns the rest from a position of a match, if the element before is a
// literal.
func (s *s2Scratch) afterLiteral(match, at int) s2Rest {
	next := int(s.matches[match+1].begin)
	rest := s.inLiteral[match+1]
	if single := int(s.matches[match].end) - s2FarLength; at < single && single < next {
		rest.cost += int32(next - single)
		rest = s.orCopy(rest, match, single)
		next = single
	}
	rest.cost += int32(next - at)
	return s.orCopy(rest, match, at)
}

// orCopy returns the copy of a match from a position on, or rest if that is cheaper or
// the match is too short.
func (s *s2Scratch) orCopy(rest s2Rest, match, at int) s2Rest {
	m := s.matches[match]
	length := int(m.end) - at
	if length < s2MinMatch {
		return rest
	}
	if cost := s2CostOfCopy(length, int(m.offset)) + s.copied[match].cost; cost <= rest.cost {
		return s2Rest{cost, int32(match), uint16(at)}
	}
	return rest
}

// s2CostOfCopy returns the cost of the elements that appendS2Copy appends for a copy with
// a new offset.
func s2CostOfCopy(length, offset int) int32 {
	switch {
	case length <= s2NearLength && offset <= s2NearOffset:
		return 2 + s2CopyCost
	case length <= s2FarLength:
		return 3 + s2CopyCost
	}
	return 3 + 3 + 2*s2CopyCost // the rest is a repeat
}

// appendS2Literal appends a literal of 1 to s2MaxOptimal bytes.
func appendS2Literal(dst, b []byte) []byte {
	switch n := len(b) - 1; {
	case n < s2MaxShortLiteral:
		dst = append(dst, byte(n<<2)|s2Literal)
	case n < 1<<8:
		dst = append(dst, s2MaxShortLiteral<<2|s2Literal, byte(n))
	default:
		dst = append(dst, (s2MaxShortLiteral+1)<<2|s2Literal, byte(n), byte(n>>8))
	}
	return append(dst, b...)
}

// appendS2Copy appends a copy of at least s2MinMatch bytes. A long one is a copy and a
// repeat, or only a repeat if last is its offset. Short repeats would save a byte, but
// decode more slowly than copies.
func appendS2Copy(dst []byte, length, offset, last int) []byte {
	if length > s2FarLength && offset == last {
		return appendS2Repeat(dst, length)
	}
	if length <= s2NearLength && offset <= s2NearOffset {
		return append(dst, byte(offset>>8<<5|(length-4)<<2|s2Near), byte(offset))
	}
	first := length
	if length > s2FarLength {
		first = min(s2FarLength, length-s2MinMatch) // a repeat has at least s2MinMatch bytes
	}
	dst = append(dst, byte((first-1)<<2|s2Far), byte(offset), byte(offset>>8))
	if first == length {
		return dst
	}
	return appendS2Repeat(dst, length-first)
}

// appendS2Repeat appends a repeat of at least s2MinMatch bytes; see s2RepeatBase.
func appendS2Repeat(dst []byte, length int) []byte {
	switch {
	case length <= 8:
		return append(dst, byte((length-4)<<2|s2Near), 0)
	case length < s2RepeatBase[1]+1<<8:
		return append(dst, 5<<2|s2Near, 0, byte(length-s2RepeatBase[1]))
	case length < s2RepeatBase[2]+1<<16:
		n := length - s2RepeatBase[2]
		return append(dst, 6<<2|s2Near, 0, byte(n), byte(n>>8))
	}
	panic("queue: a document above s2MaxOptimal")
}
