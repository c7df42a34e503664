package lsm

import (
	"bytes"
	"sync"

	"github.com/cockroachdb/errors"

	"docstore/internal/invariants"
	"docstore/lsm/internal/kv"
)

// IterOptions restrict an iterator. A nil *IterOptions does not. All given restrictions
// apply.
type IterOptions struct {
	// LowerBound is the smallest key returned; nil for none.
	LowerBound []byte
	// UpperBound is above all keys returned; nil for none.
	UpperBound []byte
	// Prefix is the prefix of all keys returned.
	Prefix []byte
}

// Iterator iterates over the keys and values of a store in the order of bytes.Compare,
// as of its creation. It is not safe for concurrent use, and must be closed.
//
// A new iterator has no position: Next moves to the first entry, Prev to the last. The
// same holds past either end: after Next has returned false, Prev moves to the last
// entry.
type Iterator struct {
	db           *DB
	pin          *pin // nil if it failed or was closed
	source       *kv.MergingIterator
	lower, upper []byte // nil for none
	place        place
	ahead        *readAhead
	key, value   []byte
	failure      error
}

// place is the position of an iterator.
type place uint8

const (
	placeNew    place = iota
	placeOn           // on an entry
	placeBefore       // before the first
	placeBehind       // after the last
)

// NewIter returns an iterator over the current state. If the DB is closed, or if the
// memtables of the iterator exceed Options.Budget, the iterator is empty and Err
// returns ErrClosed or ErrBudget. The iterator must always be closed.
func (db *DB) NewIter(o *IterOptions) *Iterator {
	p, err := db.pin()
	return newIterator(db, p, err, o)
}

// NewIter is DB.NewIter at the snapshot. The iterator may outlive the snapshot.
func (s *Snapshot) NewIter(o *IterOptions) *Iterator {
	if err := s.hold(); err != nil {
		return &Iterator{db: s.db, failure: err}
	}
	p, err := s.db.pinView(s.pin.view, s.pin.sequence)
	return newIterator(s.db, p, err, o)
}

func newIterator(db *DB, p *pin, err error, o *IterOptions) *Iterator {
	it := &Iterator{db: db, pin: p, failure: err}
	if err != nil {
		return it
	}
	it.source, it.ahead = p.view.iterator(p.sequence), readAheads.Get().(*readAhead)
	if o != nil {
		it.lower, it.upper = bytes.Clone(o.LowerBound), bytes.Clone(o.UpperBound)
		if bytes.Compare(o.Prefix, it.lower) > 0 {
			it.lower = bytes.Clone(o.Prefix)
		}
		if end := prefixEnd(o.Prefix); end != nil && (it.upper == nil || bytes.Compare(end, it.upper) < 0) {
			it.upper = end
		}
	}
	return it
}

// prefixEnd returns the smallest key above all keys with a prefix, nil if there is
// none.
func prefixEnd(prefix []byte) []byte {
	for n := len(prefix); n > 0; n-- {
		if prefix[n-1] != 0xff {
			end := bytes.Clone(prefix[:n])
			end[n-1]++
			return end
		}
	}
	return nil
}

// First moves to the smallest key.
func (it *Iterator) First() bool {
	if it.lower != nil {
		return it.seek(false, it.lower)
	}
	return it.read(false, 1, it.source.First)
}

// Last moves to the greatest key.
func (it *Iterator) Last() bool {
	if it.upper != nil {
		return it.seek(true, it.upper)
	}
	return it.read(true, 1, it.source.Last)
}

// SeekGE moves to the smallest key that is at least key.
func (it *Iterator) SeekGE(key []byte) bool {
	if it.lower != nil && bytes.Compare(key, it.lower) < 0 {
		key = it.lower
	}
	return it.seek(false, key)
}

// SeekLT moves to the greatest key below key.
func (it *Iterator) SeekLT(key []byte) bool {
	if it.upper != nil && bytes.Compare(key, it.upper) > 0 {
		key = it.upper
	}
	return it.seek(true, key)
}

// Next moves to the next greater key.
func (it *Iterator) Next() bool {
	switch it.place {
	case placeOn:
		return it.step(false)
	case placeBehind:
		return false
	}
	return it.First()
}

// Prev moves to the next smaller key.
func (it *Iterator) Prev() bool {
	switch it.place {
	case placeOn:
		return it.step(true)
	case placeBefore:
		return false
	}
	return it.Last()
}

// seek moves to the smallest key that is at least key, or backward to the greatest
// below it.
func (it *Iterator) seek(backward bool, key []byte) bool {
	return it.read(backward, 1, func() bool {
		if backward {
			return it.source.SeekLT(key)
		}
		return it.source.SeekGE(key)
	})
}

// step moves from an entry to the next.
func (it *Iterator) step(backward bool) bool {
	if !it.open(backward) {
		return false
	}
	a := it.ahead
	switch {
	case a.step(backward):
		return it.show()
	case backward != a.backward: // return to the first entry that was read ahead
		key, _ := a.shown()
		key = bytes.Clone(key)
		return it.read(backward, 1, func() bool {
			if backward {
				return it.source.SeekLT(key)
			}
			return it.source.SeekGE(key) && it.source.Next()
		})
	case a.ended:
		it.place, it.failure = endOf(backward), a.failure
		return false
	}
	return it.read(backward, 2*a.want, it.source.Next)
}

// endOf returns the place after the end in a direction.
func endOf(backward bool) place {
	if backward {
		return placeBefore
	}
	return placeBehind
}

// open reports whether the iterator can move; if not, it is put at an end. It
// invalidates the current entry.
func (it *Iterator) open(backward bool) bool {
	if invariants.Enabled { // detects callers that keep Key or Value beyond this call
		invariants.Spoil(it.key)
		invariants.Spoil(it.value)
		it.key, it.value = nil, nil
	}
	if it.pin != nil && it.db.schedule.current.Load() == nil {
		it.failure = ErrClosed
	}
	if it.pin == nil || it.failure != nil && errors.Is(it.failure, ErrClosed) {
		it.place = endOf(backward)
		return false
	}
	return true
}

// read positions the source and reads up to want entries from there.
func (it *Iterator) read(backward bool, want int, position func() bool) bool {
	if !it.open(backward) {
		return false
	}
	a := it.ahead
	a.reset(backward, want)
	it.place, it.failure = endOf(backward), nil
	it.gather(position())
	if a.count == 0 {
		it.failure = a.failure
		return false
	}
	return it.show()
}

// gather copies entries, beginning with the current one of the source if found. The
// source stays on the last of them.
func (it *Iterator) gather(found bool) {
	a := it.ahead
	for ; found; found = it.source.Next() {
		e := it.source.Current()
		if !it.within(e.Key) {
			a.ended = true
			return
		}
		if !e.Tombstone && !a.add(e) {
			return
		}
	}
	a.ended, a.failure = true, it.source.Err()
}

// within reports whether a key is within the bound in the current direction.
func (it *Iterator) within(key []byte) bool {
	if it.ahead.backward {
		return it.lower == nil || bytes.Compare(key, it.lower) >= 0
	}
	return it.upper == nil || bytes.Compare(key, it.upper) < 0
}

// show moves to the entry that was read ahead.
func (it *Iterator) show() bool {
	it.place = placeOn
	it.key, it.value = it.ahead.shown()
	if invariants.Enabled { // copies that can be overwritten: the entry may be returned again
		it.key, it.value = bytes.Clone(it.key), bytes.Clone(it.value)
	}
	return true
}

// Valid reports whether the iterator is on an entry.
func (it *Iterator) Valid() bool { return it.place == placeOn && it.Err() == nil }

// Key returns the key of the entry. It is valid until the next positioning call or
// Close.
func (it *Iterator) Key() []byte { return it.key }

// Value returns the value of the entry. It is valid until the next positioning call or
// Close.
func (it *Iterator) Value() []byte { return it.value }

// Err returns the reason why the last positioning call failed; nil at an end.
func (it *Iterator) Err() error {
	if it.failure == nil && it.pin != nil && it.db.schedule.current.Load() == nil {
		return ErrClosed
	}
	return it.failure
}

// Close releases the iterator. It is idempotent.
func (it *Iterator) Close() error {
	if it.pin != nil {
		it.source.Release()
		it.pin.release()
		readAheads.Put(it.ahead)
		it.pin, it.source, it.ahead, it.key, it.value = nil, nil, nil, nil, nil
		it.failure, it.place = ErrClosed, placeNew
	}
	return nil
}

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
