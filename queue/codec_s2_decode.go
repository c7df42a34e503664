package queue

import (
	"encoding/binary"
	"slices"

	"github.com/klauspost/compress/s2"
)

// S2 with a dictionary, decoded. The library decodes that in plain Go, a byte slice's
// copy for each of the few bytes that most steps are about; here what is short is
// copied in a fixed number of bytes, and what is too much is overwritten by the next
// step. The tests hold the two against each other, whatever the bytes.
//
// A block is its decoded length as a varint, and then elements, each with a kind in the
// two lowest bits of its tag (the format of Snappy, in which S2 gives a copy from
// offset 0 a meaning):
//
//	0  literal: length - 1 in the six bits above, or if these are 60 to 63 in 1 to 4
//	   bytes that follow; then the bytes themselves
//	1  copy: length - 4 in the three bits above, offset in the three above those and
//	   a byte; with offset 0 it repeats the last offset, and lengths of 5 to 7 say
//	   that 1 to 3 more bytes have the length
//	2  copy: length - 1 in the six bits above, offset in two bytes
//	3  copy: the same with an offset of four bytes
//
// An offset beyond the beginning of what comes out counts from the end of the
// dictionary, and then all of the copy lies in there.
const (
	s2Literal = 0
	s2Near    = 1
	s2Far     = 2
	s2Farther = 3
)

// s2Wide is how many bytes are copied at once, wanted or not.
const s2Wide = 32

// s2MaxDictionaryFrom is the last place of what comes out that may refer to the
// dictionary.
const s2MaxDictionaryFrom = 1<<16 - 1

// s2Decoder decodes blocks with a dictionary.
type s2Decoder struct {
	dictionary []byte
	padded     []byte // the dictionary and s2Wide more bytes
	offset     int    // that a first repeat means
}

// newS2Decoder takes a dictionary in the form that s2.NewDict has found valid: the
// place of the first repeat as a varint, and the bytes.
func newS2Decoder(dictionary []byte) *s2Decoder {
	repeat, n := binary.Uvarint(dictionary)
	content := dictionary[n:]
	padded := make([]byte, len(content)+s2Wide)
	copy(padded, content)
	return &s2Decoder{dictionary: padded[:len(content)], padded: padded, offset: len(content) - int(repeat)}
}

func (d *s2Decoder) decode(dst, stored []byte, rawBytes int) ([]byte, error) {
	if n, err := s2.DecodedLen(stored); err != nil || n != rawBytes {
		return dst, errDecodedLength
	}
	_, n := binary.Uvarint(stored)
	start := len(dst)
	out := slices.Grow(dst, rawBytes)[:start+rawBytes]
	if !d.elements(out[start:], stored[n:]) {
		return dst, s2.ErrCorrupt
	}
	return out, nil
}

// elements decodes the elements of a block into dst, which has the length of what comes
// out. It reports whether they were valid and filled it.
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
		// Which of the two common kinds it is nobody can foresee, so that does not branch.
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

// s2MaxShortLiteral is the longest literal whose length the tag has.
const s2MaxShortLiteral = 60

// s2LiteralLength is the length of a literal in the n bytes at from, and where it begins;
// 0 if they are not there.
func s2LiteralLength(src []byte, from, n int) (length, begin int) {
	if n > len(src)-from {
		return 0, from
	}
	return int(s2Length(src[from:from+n])) + 1, from + n
}

// s2RepeatBase is what the length of a repeat begins with that n more bytes have.
var s2RepeatBase = [4]int{0, 8, 4 + 1<<8, 4 + 1<<16}

// s2Length is a length of 1 to 4 bytes.
func s2Length(b []byte) uint32 {
	var n uint32
	for i, one := range b {
		n |= uint32(one) << (8 * i)
	}
	return n
}

// copyForward copies the beginning of b, byte by byte, to offset and behind it, so that it
// repeats what it writes where that is more than offset bytes.
func copyForward(b []byte, offset int) {
	if len(b) <= 2*offset {
		copy(b[offset:], b)
		return
	}
	for i := offset; i < len(b); i++ {
		b[i] = b[i-offset]
	}
}

// copyWide copies s2Wide bytes, the second half after the first: a source that begins
// half as far before dst, or farther, gives what a copy byte by byte would.
func copyWide(dst, src []byte) {
	dst, src = dst[:s2Wide], src[:s2Wide]
	first := *(*[s2Wide / 2]byte)(src)
	*(*[s2Wide / 2]byte)(dst) = first
	second := *(*[s2Wide / 2]byte)(src[s2Wide/2:])
	*(*[s2Wide / 2]byte)(dst[s2Wide/2:]) = second
}

// s2Copy reads the copy element at from: its length, its offset, which may be the last
// one, and where the next element is. The offset is 0 if it is none.
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

// Of a tag of kind 1 or 2 its length, the high bits of its offset, and those of the bytes
// behind it that are the offset. Of others there is no offset.
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
