package core

import (
	"math"
	"math/bits"

	"docstore/internal/invariants"
)

// NoSlot is the absence of a slot number. It is above every number: a lease below
// NoSlot takes any slot, and a full board has NoSlot as its lowest free slot.
const NoSlot int32 = math.MaxInt32

// A Board records which slot numbers of a server are taken. At most one lease has a
// number at a time.
type Board struct {
	words []uint64 // a set bit is a taken number; bits from limit on are always set
	low   int32    // words before this one have no free bit
	taken int32
	limit int32
}

// BoardWords returns the length of the slice that a board with this many slots needs.
func BoardWords(slots int) int { return (slots + 63) / 64 }

// NewBoard returns a board with the free numbers 0 to slots-1. words must be zero and
// have BoardWords(slots) elements. The board retains words.
func NewBoard(words []uint64, slots int) Board {
	words = words[:BoardWords(slots)]
	if spare := slots % 64; spare != 0 {
		words[len(words)-1] = ^uint64(0) << spare
	}
	return Board{words: words, limit: int32(slots)}
}

// LowestFree returns the lowest free number, NoSlot if there is none.
func (b *Board) LowestFree() int32 {
	for ; int(b.low) < len(b.words); b.low++ {
		if free := ^b.words[b.low]; free != 0 {
			return b.low*64 + int32(bits.TrailingZeros64(free))
		}
	}
	return NoSlot
}

// Lease takes the lowest free number if it is below the given one. Otherwise it takes
// nothing and returns the lowest free number and false.
func (b *Board) Lease(below int32) (number int32, ok bool) {
	number = b.LowestFree()
	if number == NoSlot || number >= below {
		return number, false
	}
	b.words[number/64] |= 1 << (number % 64)
	b.taken++
	if invariants.Enabled && b.marked() != int(b.taken) {
		panic("core: a slot is held twice")
	}
	return number, true
}

// marked counts the taken numbers in words.
func (b *Board) marked() int {
	marked := 0
	for _, word := range b.words {
		marked += bits.OnesCount64(word)
	}
	return marked - (len(b.words)*64 - int(b.limit))
}

// Release makes a taken number free again and reports whether it was taken.
func (b *Board) Release(number int32) bool {
	if !b.Holds(number) {
		return false
	}
	b.words[number/64] &^= 1 << (number % 64)
	b.low = min(b.low, number/64)
	b.taken--
	return true
}

// Holds reports whether the number is taken.
func (b *Board) Holds(number int32) bool {
	return number >= 0 && number < b.limit && b.words[number/64]&(1<<(number%64)) != 0
}

// Taken returns the number of taken slots.
func (b *Board) Taken() int { return int(b.taken) }
