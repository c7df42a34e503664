package lsm

import (
	"bytes"

	"github.com/cockroachdb/errors"

	"docstore/internal/invariants"
)

// IterOptions bound an iterator. The zero value does not, and neither does a nil
// *IterOptions. All that is given holds at once.
type IterOptions struct {
	// LowerBound is the least key that may be shown; nil for none.
	LowerBound []byte
	// UpperBound is above every key that may be shown; nil for none.
	UpperBound []byte
	// Prefix is what every key shown begins with.
	Prefix []byte
}

// Iterator steps over the keys of a store and their values, in the order of
// bytes.Compare, as they were when it was made. It is for one goroutine, and
// must be closed.
//
// A new iterator is on no entry: Next goes to the first, Prev to the last. The
// same holds behind either end, so that after Next has returned false Prev
// shows the last entry.
type Iterator struct {
	db           *DB
	pin          *pin // nil if there never was one, or if closed
	source       *mergingIterator
	lower, upper []byte // nil for none
	place        place
	ahead        *readAhead
	key, value   []byte
	failure      error
}

// place says where an iterator is.
type place uint8

const (
	placeNew    place = iota
	placeOn           // on an entry
	placeBefore       // before the first
	placeBehind       // behind the last
)

// NewIter makes an iterator of the present state. If the DB is closed, or if
// what the iterator would keep in memory exceeds Options.Budget, then it is
// empty and Err returns ErrClosed or ErrBudget. Close it in any case.
func (db *DB) NewIter(o *IterOptions) *Iterator {
	p, err := db.pin()
	return newIterator(db, p, err, o)
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

// prefixEnd returns the least key above all keys with a prefix, nil if there is none.
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

// First goes to the least key.
func (it *Iterator) First() bool {
	if it.lower != nil {
		return it.seek(false, it.lower)
	}
	return it.read(false, 1, it.source.first)
}

// Last goes to the greatest key.
func (it *Iterator) Last() bool {
	if it.upper != nil {
		return it.seek(true, it.upper)
	}
	return it.read(true, 1, it.source.last)
}

// SeekGE goes to the least key that is not below key.
func (it *Iterator) SeekGE(key []byte) bool {
	if it.lower != nil && bytes.Compare(key, it.lower) < 0 {
		key = it.lower
	}
	return it.seek(false, key)
}

// SeekLT goes to the greatest key below key.
func (it *Iterator) SeekLT(key []byte) bool {
	if it.upper != nil && bytes.Compare(key, it.upper) > 0 {
		key = it.upper
	}
	return it.seek(true, key)
}

// Next goes to the next greater key.
func (it *Iterator) Next() bool {
	switch it.place {
	case placeOn:
		return it.step(false)
	case placeBehind:
		return false
	}
	return it.First()
}

// Prev goes to the next smaller key.
func (it *Iterator) Prev() bool {
	switch it.place {
	case placeOn:
		return it.step(true)
	case placeBefore:
		return false
	}
	return it.Last()
}

// seek goes to the least key not below the given one, or to the greatest below it.
func (it *Iterator) seek(backward bool, key []byte) bool {
	return it.read(backward, 1, func() bool {
		if backward {
			return it.source.seekLT(key)
		}
		return it.source.seekGE(key)
	})
}

// step goes on from an entry.
func (it *Iterator) step(backward bool) bool {
	if !it.open(backward) {
		return false
	}
	a := it.ahead
	switch {
	case a.step(backward):
		return it.show()
	case backward != a.backward: // back from the first that was read ahead
		key, _ := a.shown()
		key = bytes.Clone(key)
		return it.read(backward, 1, func() bool {
			if backward {
				return it.source.seekLT(key)
			}
			return it.source.seekGE(key) && it.source.next()
		})
	case a.ended:
		it.place, it.failure = endOf(backward), a.failure
		return false
	}
	return it.read(backward, 2*a.want, it.source.next)
}

// endOf is where an iterator is that has found nothing in a direction.
func endOf(backward bool) place {
	if backward {
		return placeBefore
	}
	return placeBehind
}

// open tells whether the iterator may go on; if not, it is at an end. What it has
// shown is not valid any more.
func (it *Iterator) open(backward bool) bool {
	if invariants.Enabled { // who keeps Key or Value beyond this call keeps nothing
		invariants.Spoil(it.key)
		invariants.Spoil(it.value)
		it.key, it.value = nil, nil
	}
	if it.pin != nil && it.db.current.Load() == nil {
		it.failure = ErrClosed
	}
	if it.pin == nil || it.failure != nil && errors.Is(it.failure, ErrClosed) {
		it.place = endOf(backward)
		return false
	}
	return true
}

// read positions the source, and reads entries from there on, up to a number.
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

// gather copies entries from the one that the source is on, if it has found one. The
// source stays on the last of them.
func (it *Iterator) gather(found bool) {
	a := it.ahead
	for ; found; found = it.source.next() {
		e := it.source.shown()
		if !it.within(e.key) {
			a.ended = true
			return
		}
		if !e.tombstone && !a.add(e) {
			return
		}
	}
	a.ended, a.failure = true, it.source.err()
}

// within tells whether a key is on the near side of the bound ahead.
func (it *Iterator) within(key []byte) bool {
	if it.ahead.backward {
		return it.lower == nil || bytes.Compare(key, it.lower) >= 0
	}
	return it.upper == nil || bytes.Compare(key, it.upper) < 0
}

// show is on the entry that was read ahead.
func (it *Iterator) show() bool {
	it.place = placeOn
	it.key, it.value = it.ahead.shown()
	if invariants.Enabled { // copies, to be spoilt: the entry may be shown again
		it.key, it.value = bytes.Clone(it.key), bytes.Clone(it.value)
	}
	return true
}

// Valid tells whether the iterator is on an entry.
func (it *Iterator) Valid() bool { return it.place == placeOn && it.Err() == nil }

// Key returns the key of the entry, valid until the next positioning call, or Close.
func (it *Iterator) Key() []byte { return it.key }

// Value returns the value of the entry, valid until the next positioning call, or Close.
func (it *Iterator) Value() []byte { return it.value }

// Err tells why the last positioning call found nothing; nil at an end.
func (it *Iterator) Err() error {
	if it.failure == nil && it.pin != nil && it.db.current.Load() == nil {
		return ErrClosed
	}
	return it.failure
}

// Close lets go of what the iterator holds. It may be called again.
func (it *Iterator) Close() error {
	if it.pin != nil {
		it.source.release()
		it.pin.release()
		readAheads.Put(it.ahead)
		it.pin, it.source, it.ahead, it.key, it.value = nil, nil, nil, nil, nil
		it.failure, it.place = ErrClosed, placeNew
	}
	return nil
}
