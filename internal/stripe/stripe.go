// Package stripe lets many goroutines count without waiting for one another.
//
// Processors that add to one number hand its cache line to and fro, and each waits
// for it as long as for main memory. So what is counted often is counted in several
// places, a line each: a goroutine adds where hardly any other does, and who wants
// the sum, which is seldom, reads them all.
package stripe

import (
	"sync/atomic"
	"unsafe"
)

const countBits = 5

// Count is the number of stripes.
const Count = 1 << countBits

// LineBytes is how far stripes have to lie apart: processors fetch lines of 64 bytes,
// and some of them two at a time.
const LineBytes = 128

// Own returns the number of a stripe, below Count, that hardly any other goroutine
// uses at the moment. It may be another one next time.
//
// A goroutine has no number that it may know, but a stack of its own: where that
// lies, tells goroutines apart.
func Own() uint {
	var here byte
	const minStackBytes = 2 << 10
	at := uint64(uintptr(unsafe.Pointer(&here))) / minStackBytes
	const golden = 0x9E3779B97F4A7C15
	return uint(at * golden >> (64 - countBits))
}

// Readers counts those who use something, so that who has taken it out of everybody's
// sight knows when it may go. The zero value counts none.
//
// Enter comes before the look whether it is still in sight, and Leave after the last
// use; a goroutine may leave on another stripe than the one it has entered on.
type Readers struct {
	stripes [Count]struct {
		entered, left atomic.Uint64
		_             [LineBytes - 16]byte
	}
}

// Enter counts one more.
func (r *Readers) Enter() { r.stripes[Own()].entered.Add(1) }

// Leave counts one less.
func (r *Readers) Leave() { r.stripes[Own()].left.Add(1) }

// None tells whether there was a moment, since it was called, when all that had
// entered had left.
//
// It counts those who left, and then those who entered. Who left until the moment
// between the two had entered before it: if both counts are the same, then at that
// moment nobody was in. (This is how sleepable RCU does it.)
func (r *Readers) None() bool {
	var entered, left uint64
	for i := range r.stripes {
		left += r.stripes[i].left.Load()
	}
	for i := range r.stripes {
		entered += r.stripes[i].entered.Load()
	}
	return entered == left
}
