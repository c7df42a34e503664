package records

import (
	"encoding/binary"
	"math/bits"
)

// plainEnd returns where the bytes of text from at on stop to mean themselves
// within a JSON string: at the first quote, backslash or control character, or at
// the end of text.
func plainEnd(text []byte, at int) int {
	at = plainBlocks(text, at)
	for at < len(text) && plain[text[at]] {
		at++
	}
	return at
}

// plain are the bytes that mean themselves.
var plain = func() (table [256]bool) {
	for c := 0x20; c < len(table); c++ {
		table[c] = c != '"' && c != '\\'
	}
	return table
}()

// plainWords is plainEnd as far as it goes by eight bytes at a time: it stops where
// plainEnd does, or before fewer than eight.
func plainWords(text []byte, at int) int {
	for ; len(text)-at >= 8; at += 8 {
		if marks := special(binary.LittleEndian.Uint64(text[at:])); marks != 0 {
			return at + bits.TrailingZeros64(marks)/8
		}
	}
	return at
}

const eachByte = 0x0101010101010101 // times a byte: that byte eight times

// special sets the top bit of the first byte of word, counted from the lowest, that
// is not plain; behind it, it may set those of plain ones, too. Zero: all are plain.
//
// Take n away from each byte of a word: one of 0x80 or more aside, a byte's top bit
// is set then if it was less than n, and as long as none was, no byte borrows from
// the next. A byte equals another if their difference by xor is less than 1. After
// "Determine if a word has a byte less than n", Anderson, Bit Twiddling Hacks.
func special(word uint64) uint64 {
	control := word - 0x20*eachByte
	quote := (word ^ '"'*eachByte) - eachByte
	backslash := (word ^ '\\'*eachByte) - eachByte
	return (control | quote | backslash) &^ word & (0x80 * eachByte)
}
