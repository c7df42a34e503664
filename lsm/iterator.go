package lsm

import (
	"bytes"

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
	backward     bool // direction of source
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
	return it.position(false, it.source.First)
}

// Last moves to the greatest key.
func (it *Iterator) Last() bool {
	if it.upper != nil {
		return it.seek(true, it.upper)
	}
	return it.position(true, it.source.Last)
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
	return it.position(backward, func() bool {
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
	if backward == it.backward {
		return it.settle(it.source.Next())
	}
	key := bytes.Clone(it.source.Current().Key)
	return it.position(backward, func() bool {
		if backward {
			return it.source.SeekLT(key)
		}
		return it.source.SeekGE(key) && it.source.Next()
	})
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

// position moves the source in a direction and then to the first entry from there.
func (it *Iterator) position(backward bool, move func() bool) bool {
	if !it.open(backward) {
		return false
	}
	it.backward = backward
	return it.settle(move())
}

// settle moves to the first entry from the current one of the source, if found, that is
// within the bounds and no tombstone.
func (it *Iterator) settle(found bool) bool {
	for ; found; found = it.source.Next() {
		e := it.source.Current()
		if !it.within(e.Key) {
			it.place, it.failure = endOf(it.backward), nil
			return false
		}
		if e.Tombstone {
			continue
		}
		it.place, it.failure, it.key, it.value = placeOn, nil, e.Key, e.Value
		if invariants.Enabled { // copies, which open overwrites
			it.key, it.value = bytes.Clone(it.key), bytes.Clone(it.value)
		}
		return true
	}
	it.place, it.failure = endOf(it.backward), it.source.Err()
	return false
}

// within reports whether a key is within the bound in the current direction.
func (it *Iterator) within(key []byte) bool {
	if it.backward {
		return it.lower == nil || bytes.Compare(key, it.lower) >= 0
	}
	return it.upper == nil || bytes.Compare(key, it.upper) < 0
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
		it.pin, it.source, it.key, it.value = nil, nil, nil, nil
		it.failure, it.place = ErrClosed, placeNew
	}
	return nil
}
