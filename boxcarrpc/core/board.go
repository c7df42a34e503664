package core

import (
	"math"
	"math/bits"

	"docstore/internal/invariants"
)

// NoSlot stands where a slot number is expected and there is none. It is above
// every number: a lease below NoSlot takes any slot, and a board whose lowest
// free slot is NoSlot has none.
const NoSlot int32 = math.MaxInt32

// A Board is the slots of a server: which numbers are taken. A number is never
// taken twice at once.
type Board struct {
	words []uint64 // a set bit is a taken number; bits from limit on stay set
	low   int32    // no word before this one has a free bit
	taken int32
	limit int32
}

// BoardWords is the length of the slice that a board of so many slots needs.
func BoardWords(slots int) int { return (slots + 63) / 64 }

// NewBoard makes a board of the numbers 0 to slots-1, all free, in words, which
// must be zero and have BoardWords(slots) elements. The board keeps it.
func NewBoard(words []uint64, slots int) Board {
	words = words[:BoardWords(slots)]
	if spare := slots % 64; spare != 0 {
		words[len(words)-1] = ^uint64(0) << spare
	}
	return Board{words: words, limit: int32(slots)}
}

// LowestFree returns the number that the next lease gets, NoSlot if none.
func (b *Board) LowestFree() int32 {
	for ; int(b.low) < len(b.words); b.low++ {
		if free := ^b.words[b.low]; free != 0 {
			return b.low*64 + int32(bits.TrailingZeros64(free))
		}
	}
	return NoSlot
}

// Lease takes the lowest free number if it is below the given one. If it is
// not, nothing is taken, and the lowest free number is returned with false.
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

// marked counts the numbers that are marked as taken.
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

// Taken is how many numbers are taken.
func (b *Board) Taken() int { return int(b.taken) }
