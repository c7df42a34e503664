package lsm

import (
	"sync"

	"docstore/lsm/internal/kv"
)

// Bounds of an iterator's read-ahead. It doubles with each read in the same direction,
// because an iterator that has read a few entries most likely reads more. Entering and
// leaving the guarded mapping costs more than copying an entry.
const (
	maxAheadEntries = 64
	maxAheadBytes   = 16 << 10
)

// readAhead holds consecutive entries that were copied out of the mappings together.
type readAhead struct {
	backward bool
	want     int    // maximum number of entries
	bytes    []byte // keys and values, each value after its key
	ends     [maxAheadEntries]struct{ key, value uint32 }
	count    int
	at       int // current entry

	// ended is set if there is no entry after the last one, because of failure, or an
	// end or bound if failure is nil.
	ended   bool
	failure error
}

// readAheads are those of closed iterators. Allocating and growing one took as long as
// a scan of fifty entries.
var readAheads = sync.Pool{New: func() any { return new(readAhead) }}

// reset discards all entries and sets the direction.
func (a *readAhead) reset(backward bool, want int) {
	a.backward, a.want, a.count, a.at = backward, min(want, maxAheadEntries), 0, 0
	a.ended, a.failure = false, nil
	if a.bytes = a.bytes[:0]; cap(a.bytes) > 2*maxAheadBytes { // had a large value
		a.bytes = nil
	}
}

// add copies an entry and reports whether there is space for more.
func (a *readAhead) add(e *kv.Entry) bool {
	end := &a.ends[a.count]
	a.count++
	a.bytes = append(a.bytes, e.Key...)
	end.key = uint32(len(a.bytes))
	a.bytes = append(a.bytes, e.Value...)
	end.value = uint32(len(a.bytes))
	return a.count < a.want && len(a.bytes) < maxAheadBytes
}

// step moves to the next entry in a direction, if it was read.
func (a *readAhead) step(backward bool) bool {
	to := a.at + 1
	if backward != a.backward {
		to = a.at - 1
	}
	if to < 0 || to >= a.count {
		return false
	}
	a.at = to
	return true
}

// shown returns the current entry.
func (a *readAhead) shown() (key, value []byte) {
	start := uint32(0)
	if a.at > 0 {
		start = a.ends[a.at-1].value
	}
	end := a.ends[a.at]
	return a.bytes[start:end.key:end.key], a.bytes[end.key:end.value:end.value]
}
