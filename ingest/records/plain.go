package records

import (
	"encoding/binary"
	"math/bits"
)

// PlainEnd returns the offset of the first byte of text from at on that a JSON string cannot
// contain as it is, a quote, backslash or control character, or the length of text.
func PlainEnd(text []byte, at int) int {
	at = plainBlocks(text, at)
	for at < len(text) && plain[text[at]] {
		at++
	}
	return at
}

// plain marks the bytes that need no escape.
var plain = func() (table [256]bool) {
	for c := 0x20; c < len(table); c++ {
		table[c] = c != '"' && c != '\\'
	}
	return table
}()

// plainWords is PlainEnd in steps of eight bytes: it stops where PlainEnd does, or when
// fewer than eight bytes are left.
func plainWords(text []byte, at int) int {
	for ; len(text)-at >= 8; at += 8 {
		if marks := special(binary.LittleEndian.Uint64(text[at:])); marks != 0 {
			return at + bits.TrailingZeros64(marks)/8
		}
	}
	return at
}

const eachByte = 0x0101010101010101 // times a byte: eight copies of it

// special sets the top bit of the lowest byte of word that is not plain; it may set top
// bits of higher plain bytes, too. Zero: all are plain.
//
// If n is subtracted from each byte of a word, the top bit of a byte below 0x80 is set if
// it was less than n, and as long as none was, no byte borrows from the next. Two bytes are
// equal if their xor is less than 1. After "Determine if a word has a byte less than n",
// Anderson, Bit Twiddling Hacks.
func special(word uint64) uint64 {
	control := word - 0x20*eachByte
	quote := (word ^ '"'*eachByte) - eachByte
	backslash := (word ^ '\\'*eachByte) - eachByte
	return (control | quote | backslash) &^ word & (0x80 * eachByte)
}
