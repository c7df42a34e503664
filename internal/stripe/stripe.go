// Package stripe provides counters without contention between goroutines.
//
// Processors that increment the same counter transfer its cache line back and forth,
// which costs a cache miss each time. So frequently updated counters are striped over
// several cache lines: a goroutine increments a stripe that few others use, and the
// rare reader sums all stripes.
package stripe

import (
	"sync/atomic"
	"unsafe"
)

const countBits = 5

// Count is the number of stripes.
const Count = 1 << countBits

// LineBytes is the minimum distance of stripes: cache lines have 64 bytes, and some
// processors fetch two at a time.
const LineBytes = 128

// Own returns a stripe number, below Count, that few other goroutines currently use.
// The result can change between calls.
//
// Goroutines have no accessible id, so the address of the stack is hashed instead.
func Own() uint {
	var here byte
	const minStackBytes = 2 << 10
	at := uint64(uintptr(unsafe.Pointer(&here))) / minStackBytes
	const golden = 0x9E3779B97F4A7C15
	return uint(at * golden >> (64 - countBits))
}

// Readers counts the readers of an object, so that the owner, after unpublishing the
// object, knows when it can release it. The zero value has no readers.
//
// A reader must call Enter before it checks that the object is still published, and
// Leave after its last use, possibly on another stripe.
type Readers struct {
	stripes [Count]struct {
		entered, left atomic.Uint64
		_             [LineBytes - 16]byte
	}
}

// Enter adds a reader.
func (r *Readers) Enter() { r.stripes[Own()].entered.Add(1) }

// Leave removes a reader.
func (r *Readers) Leave() { r.stripes[Own()].left.Add(1) }

// None reports whether, at some moment during the call, there were no readers.
//
// It sums the left counters first and then the entered counters. Every reader that left
// before the moment between the two sums had entered before it. So if the sums are
// equal, there was no reader at that moment. (Sleepable RCU uses the same algorithm.)
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
