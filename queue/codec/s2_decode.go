package codec

import (
	"encoding/binary"
	"slices"

	"github.com/klauspost/compress/s2"
)

// A decoder for S2 with a dictionary, and for long documents without one. The library's
// decoder for dictionaries copies a slice for the few bytes of a typical element. This one copies short elements in a fixed number of bytes;
// the next element overwrites the excess. The tests compare the two on arbitrary input.
//
// A block is its decoded length as a varint, followed by elements. The two lowest bits of
// an element's tag are its kind (the format of Snappy; in S2 a copy from offset 0 is a
// repeat):
//
//	0  literal: length - 1 in the six bits above, or if these are 60 to 63 in 1 to 4
//	   bytes that follow; then the bytes themselves
//	1  copy: length - 4 in the three bits above, offset in the three above those and
//	   a byte; with offset 0 it repeats the last offset, and lengths of 5 to 7 say
//	   that 1 to 3 more bytes have the length
//	2  copy: length - 1 in the six bits above, offset in two bytes
//	3  copy: the same with an offset of four bytes
//
// An offset beyond the start of the output counts from the end of the dictionary; then
// the whole copy lies in the dictionary.
const (
	s2Literal = 0
	s2Near    = 1
	s2Far     = 2
	s2Farther = 3
)

// s2Wide is the number of bytes copied at once, regardless of the element's length.
const s2Wide = 32

// s2MaxDictionaryFrom is the last output offset at which a copy may refer to the
// dictionary.
const s2MaxDictionaryFrom = 1<<16 - 1

// s2Decoder decodes blocks with a dictionary.
type s2Decoder struct {
	dictionary []byte
	padded     []byte // the dictionary and s2Wide bytes of padding
	offset     int    // of a repeat before any copy
}

// newS2Decoder takes a dictionary that s2.NewDict has accepted: the offset of the first
// repeat as a varint, and the content.
func newS2Decoder(dictionary []byte) *s2Decoder {
	repeat, n := binary.Uvarint(dictionary)
	content := dictionary[n:]
	padded := make([]byte, len(content)+s2Wide)
	copy(padded, content)
	return &s2Decoder{dictionary: padded[:len(content)], padded: padded, offset: len(content) - int(repeat)}
}

func (d *s2Decoder) Decode(dst, stored []byte, rawBytes int) ([]byte, error) {
	if n, err := s2.DecodedLen(stored); err != nil || n != rawBytes {
		return dst, errDecodedLength
	}
	_, n := binary.Uvarint(stored)
	start := len(dst)
	out := growTo(dst, start+rawBytes)
	if !d.elements(out[start:], stored[n:]) {
		return dst, s2.ErrCorrupt
	}
	return out, nil
}

// growthSlack lets the caller append a few bytes to a long document without a copy.
const growthSlack = 64

// growTo returns dst with length n. slices.Grow clears the new memory in one step that
// cannot be preempted; make clears memory in pieces, and not memory that is new to the
// process.
func growTo(dst []byte, n int) []byte {
	if n <= max(cap(dst), s2LibraryBytes) {
		return slices.Grow(dst, n-len(dst))[:n]
	}
	grown := make([]byte, n, n+growthSlack)
	copy(grown, dst)
	return grown
}

// elements decodes the elements of a block into dst, which has the decoded length. It
// reports whether they are valid and fill dst.
func (d *s2Decoder) elements(dst, src []byte) bool {
	dictionary, padded, offset := d.dictionary, d.padded, d.offset
	at, from := 0, 0
	for from < len(src) {
		tag := src[from]
		if tag&3 == s2Literal {
			length := int(tag>>2) + 1
			from++
			if length > s2MaxShortLiteral {
				length, from = s2LiteralLength(src, from, length-s2MaxShortLiteral)
			}
			if length <= 0 || length > len(dst)-at || length > len(src)-from {
				return false
			}
			if length <= s2Wide && len(dst)-at >= s2Wide && len(src)-from >= s2Wide {
				copyWide(dst[at:], src[from:])
			} else {
				copy(dst[at:at+length], src[from:])
			}
			at, from = at+length, from+length
			if from == len(src) {
				break
			}
			if tag = src[from]; tag&3 == s2Literal {
				continue
			}
		}
		// Branch-free: a branch on the two common kinds would be unpredictable.
		length := int(s2Lengths[tag])
		near := 0
		if len(src)-from >= 4 {
			near = int(s2High[tag]) | int(binary.LittleEndian.Uint32(src[from:])>>8&s2Masks[tag&3])
		}
		if near > 0 {
			offset = near
			from += int(tag&3) + 1
		} else {
			var last int
			if length, last, from = s2Copy(src, from, offset); last <= 0 {
				return false
			}
			offset = last
		}
		if length > len(dst)-at {
			return false
		}
		wide := length <= s2Wide && len(dst)-at >= s2Wide
		if offset > at {
			there := len(dictionary) - offset + at
			if there < 0 || length > len(dictionary)-there || at > s2MaxDictionaryFrom {
				return false
			}
			if wide {
				copyWide(dst[at:], padded[there:])
			} else {
				copy(dst[at:at+length], dictionary[there:])
			}
			at += length
			continue
		}
		if wide && offset >= s2Wide/2 {
			copyWide(dst[at:], dst[at-offset:])
		} else {
			copyForward(dst[at-offset:at+length], offset)
		}
		at += length
	}
	return at == len(dst)
}

// s2MaxShortLiteral is the longest literal whose length is in the tag.
const s2MaxShortLiteral = 60

// s2LiteralLength returns the length of a literal, from the n bytes at from, and the
// offset of the literal; 0 if the bytes are missing.
func s2LiteralLength(src []byte, from, n int) (length, begin int) {
	if n > len(src)-from {
		return 0, from
	}
	return int(s2Length(src[from:from+n])) + 1, from + n
}

// s2RepeatBase is the base of a repeat's length, by the number of extra length bytes.
var s2RepeatBase = [4]int{0, 8, 4 + 1<<8, 4 + 1<<16}

// s2Length decodes a length of 1 to 4 bytes.
func s2Length(b []byte) uint32 {
	var n uint32
	for i, one := range b {
		n |= uint32(one) << (8 * i)
	}
	return n
}

// copyForward copies the beginning of b to offset, byte by byte to the end of b, so that
// it repeats its own output if that is longer than offset.
func copyForward(b []byte, offset int) {
	if len(b) <= 2*offset {
		copy(b[offset:], b)
		return
	}
	for i := offset; i < len(b); i++ {
		b[i] = b[i-offset]
	}
}

// copyWide copies s2Wide bytes in two halves, the second after the first. If src begins
// at least half as far before dst, the result is that of a copy byte by byte.
func copyWide(dst, src []byte) {
	dst, src = dst[:s2Wide], src[:s2Wide]
	first := *(*[s2Wide / 2]byte)(src)
	*(*[s2Wide / 2]byte)(dst) = first
	second := *(*[s2Wide / 2]byte)(src[s2Wide/2:])
	*(*[s2Wide / 2]byte)(dst[s2Wide/2:]) = second
}

// s2Copy parses the copy element at from: its length, its offset, which may be the last
// one, and the offset of the next element. The copy offset is 0 if the element is
// invalid.
func s2Copy(src []byte, from, last int) (length, offset, next int) {
	tag, rest := src[from], src[from+1:]
	switch kind := tag & 3; {
	case kind == s2Farther && len(rest) >= 4:
		return int(tag>>2) + 1, int(binary.LittleEndian.Uint32(rest)), from + 5
	case kind == s2Far && len(rest) >= 2:
		return int(tag>>2) + 1, int(binary.LittleEndian.Uint16(rest)), from + 3
	case kind == s2Near && len(rest) >= 1:
		length, offset, next = int(tag>>2&7)+4, int(tag&0xe0)<<3|int(rest[0]), from+2
		if offset > 0 {
			return length, offset, next
		}
		if n := length - 8; n > 0 {
			if n > len(src)-next {
				return 0, 0, 0
			}
			length, next = int(s2Length(src[next:next+n]))+s2RepeatBase[n], next+n
		}
		return length, last, next
	}
	return 0, 0, 0
}

// By tag: the length of a copy of kind 1 or 2, the high bits of its offset, and a mask of
// the following bytes that belong to the offset.
var (
	s2Lengths [256]uint8
	s2High    [256]uint16
	s2Masks   = [4]uint32{s2Near: 0xff, s2Far: 0xffff}
)

func init() {
	for tag := range 256 {
		switch tag & 3 {
		case s2Near:
			s2Lengths[tag], s2High[tag] = uint8(tag>>2&7+4), uint16(tag&0xe0)<<3
		case s2Far:
			s2Lengths[tag] = uint8(tag>>2 + 1)
		}
	}
}
