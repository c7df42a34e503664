package lsm

import (
	"bytes"

	"github.com/cockroachdb/errors"

	"docstore/internal/invariants"
	"docstore/internal/vfs"
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
	source       internalIterator
	lower, upper []byte // nil for none
	place        place
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
	it.source = p.view.iterator(p.sequence)
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
	return it.move(placeBehind, func() bool {
		if it.lower != nil {
			return it.source.seekGE(it.lower)
		}
		return it.source.first()
	})
}

// Last goes to the greatest key.
func (it *Iterator) Last() bool {
	return it.move(placeBefore, func() bool {
		if it.upper != nil {
			return it.source.seekLT(it.upper)
		}
		return it.source.last()
	})
}

// SeekGE goes to the least key that is not below key.
func (it *Iterator) SeekGE(key []byte) bool {
	if it.lower != nil && bytes.Compare(key, it.lower) < 0 {
		key = it.lower
	}
	return it.move(placeBehind, func() bool { return it.source.seekGE(key) })
}

// SeekLT goes to the greatest key below key.
func (it *Iterator) SeekLT(key []byte) bool {
	if it.upper != nil && bytes.Compare(key, it.upper) > 0 {
		key = it.upper
	}
	return it.move(placeBefore, func() bool { return it.source.seekLT(key) })
}

// Next goes to the next greater key.
func (it *Iterator) Next() bool {
	switch it.place {
	case placeOn:
		return it.move(placeBehind, func() bool { return it.source.next() })
	case placeBehind:
		return false
	}
	return it.First()
}

// Prev goes to the next smaller key.
func (it *Iterator) Prev() bool {
	switch it.place {
	case placeOn:
		return it.move(placeBefore, func() bool { return it.source.prev() })
	case placeBefore:
		return false
	}
	return it.Last()
}

// move positions the source, passes over tombstones towards an end, and copies
// what is to be shown. Nothing else touches the mappings.
func (it *Iterator) move(end place, position func() bool) bool {
	it.place = end
	if invariants.Enabled { // who keeps Key or Value beyond this call keeps nothing
		invariants.Spoil(it.key)
		invariants.Spoil(it.value)
		it.key, it.value = nil, nil
	}
	if it.pin != nil && it.db.current.Load() == nil {
		it.failure = ErrClosed
	}
	if it.pin == nil || errors.Is(it.failure, ErrClosed) {
		return false
	}
	it.failure = nil
	fault := vfs.Guard(func() {
		found := position()
		for found && it.within(end) && it.source.tombstone() {
			if end == placeBehind {
				found = it.source.next()
			} else {
				found = it.source.prev()
			}
		}
		if !found {
			it.failure = it.source.err()
			return
		}
		if it.within(end) {
			it.key = append(it.key[:0], it.source.key()...)
			it.value = append(it.value[:0], it.source.value()...)
			it.place = placeOn
		}
	})
	if fault != nil {
		it.place, it.failure = end, errors.Wrap(fault, "lsm: read a table")
	}
	return it.place == placeOn
}

// within tells whether the source's key is on the near side of the bound ahead.
func (it *Iterator) within(end place) bool {
	if end == placeBehind {
		return it.upper == nil || bytes.Compare(it.source.key(), it.upper) < 0
	}
	return it.lower == nil || bytes.Compare(it.source.key(), it.lower) >= 0
}

// Valid tells whether the iterator is on an entry.
func (it *Iterator) Valid() bool { return it.place == placeOn && it.Err() == nil }

// Key returns the key of the entry, valid until the next positioning call.
func (it *Iterator) Key() []byte { return it.key }

// Value returns the value of the entry, valid until the next positioning call.
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
		it.pin.release()
		it.pin, it.source, it.failure, it.place = nil, nil, ErrClosed, placeNew
	}
	return nil
}
