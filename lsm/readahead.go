package lsm

import "sync"

// What an iterator reads ahead: twice as much each time that it goes on in one
// direction, up to these bounds, since one who has asked for a few entries most likely
// asks for more. To step into the mappings and out of them again costs more than to
// copy an entry.
const (
	maxAheadEntries = 64
	maxAheadBytes   = 16 << 10
)

// readAhead is entries that were copied out of the mappings together. They follow each
// other in the store, in the direction in which they were read.
type readAhead struct {
	backward bool
	want     int    // how many were to be read, at most
	bytes    []byte // keys and values, each value behind its key
	ends     [maxAheadEntries]struct{ key, value uint32 }
	count    int
	at       int // of the entry shown

	// ended is set if none is behind the last one, for the reason that failure tells:
	// nil is an end or a bound.
	ended   bool
	failure error
}

// readAheads are those of iterators that were closed. For a scan of fifty entries, to
// make one and let it grow took as long as the scan.
var readAheads = sync.Pool{New: func() any { return new(readAhead) }}

// reset forgets everything, to read entries in a direction.
func (a *readAhead) reset(backward bool, want int) {
	a.backward, a.want, a.count, a.at = backward, min(want, maxAheadEntries), 0, 0
	a.ended, a.failure = false, nil
	if a.bytes = a.bytes[:0]; cap(a.bytes) > 2*maxAheadBytes { // it was a large value
		a.bytes = nil
	}
}

// add copies an entry and tells whether there is room for more.
func (a *readAhead) add(e *entry) bool {
	end := &a.ends[a.count]
	a.count++
	a.bytes = append(a.bytes, e.key...)
	end.key = uint32(len(a.bytes))
	a.bytes = append(a.bytes, e.value...)
	end.value = uint32(len(a.bytes))
	return a.count < a.want && len(a.bytes) < maxAheadBytes
}

// step shows the next entry in a direction, if it is there.
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

// shown returns the entry shown.
func (a *readAhead) shown() (key, value []byte) {
	start := uint32(0)
	if a.at > 0 {
		start = a.ends[a.at-1].value
	}
	end := a.ends[a.at]
	return a.bytes[start:end.key:end.key], a.bytes[end.key:end.value:end.value]
}
