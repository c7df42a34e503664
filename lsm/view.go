package lsm

import (
	"sync/atomic"

	"docstore/bloom"
	"docstore/internal/stripe"
	"docstore/internal/vfs"
)

// view is what makes up the store at a moment: an immutable list of memtables
// and tables. Every flush, merge and new memtable makes another.
//
// Readers hold one without a lock, and without writing where another reader does.
// The invariants:
//
//   - A view holds a reference to each of its tables and memtables until it is let go
//     of; a table without references is unmapped. So whoever holds a view may read
//     its tables.
//   - A view is let go of once, after its maker has retired it, at a moment when no
//     reader holds it.
//   - A reader of the DB's view counts itself, and then looks whether the view is
//     still the DB's. If it is, it was not retired when the reader was counted: the DB
//     stores a newer view before it retires one. If it is not, the reader did not
//     look at it, and tries again with the newer one.
//   - One more reader of a view that is held may be counted at any time.
//   - The view struct itself is kept by the garbage collector for as long as
//     somebody has its address, so counting readers of a dead one is harmless.
type view struct {
	memtables []*memtable // newest first; in a DB that writes, [0] is being filled
	tables    []*table    // newest first
	readers   stripe.Readers
	retired   atomic.Bool
	gone      atomic.Bool
}

// newView returns a view that its caller has to retire.
func newView(memtables []*memtable, tables []*table) *view {
	v := &view{memtables: memtables, tables: tables}
	for _, m := range memtables {
		m.ref()
	}
	for _, t := range tables {
		t.ref()
	}
	return v
}

// tablesOnly returns a view of the tables of one that the caller holds, for
// work that takes its time and must not keep memtables. The caller has to retire it.
func (v *view) tablesOnly() *view { return newView(nil, v.tables) }

// ref counts one more reader.
func (v *view) ref() { v.readers.Enter() }

// unref counts one less.
func (v *view) unref() {
	v.readers.Leave()
	if v.retired.Load() {
		v.letGo()
	}
}

// retire has the view let go of as soon as no reader holds it. For who made it, once
// no new reader can find it.
func (v *view) retire() {
	v.retired.Store(true)
	v.letGo()
}

func (v *view) letGo() {
	if !v.readers.None() || v.gone.Swap(true) {
		return
	}
	for _, m := range v.memtables {
		m.unref()
	}
	for _, t := range v.tables {
		t.unref()
	}
}

// get appends to dst what a key held at a sequence number.
func (v *view) get(dst, key []byte, sequence uint64) ([]byte, error) {
	if found, ok := v.getFromMemtables(key, sequence); ok {
		if found.tombstone {
			return dst, ErrNotFound
		}
		return append(dst, found.value...), nil
	}
	if len(v.tables) == 0 {
		return dst, ErrNotFound
	}
	h := bloom.HashKey(key)
	var err error
	result := dst
	if fault := vfs.Guard(func() { result, err = v.getFromTables(dst, key, h) }); fault != nil {
		return v.getOneByOne(dst, key, (*table).get)
	}
	return result, err
}

// getVerified is get of a value that is verified now.
func (v *view) getVerified(dst, key []byte, sequence uint64) ([]byte, error) {
	if found, ok := v.getFromMemtables(key, sequence); ok {
		if found.tombstone {
			return dst, ErrNotFound
		}
		return append(dst, found.value...), nil
	}
	return v.getOneByOne(dst, key, (*table).getVerified)
}

// getOneByOne asks each table by itself, so that an error names the table.
func (v *view) getOneByOne(dst, key []byte, get func(t *table, h bloom.Hash, key []byte) (entry, bool, error)) ([]byte, error) {
	h := bloom.HashKey(key)
	for _, t := range v.tables {
		var e entry
		var found bool
		result := dst
		err := t.guard(func() (err error) {
			e, found, err = get(t, h, key)
			result = append(result[:len(dst)], e.value...)
			return err
		})
		switch {
		case err != nil:
			return dst, err
		case found && e.tombstone:
			return dst, ErrNotFound
		case found:
			return result, nil
		}
	}
	return dst, ErrNotFound
}

func (v *view) getFromMemtables(key []byte, sequence uint64) (found memVersion, ok bool) {
	hash, hashed := uint32(0), false
	for _, m := range v.memtables {
		if !m.concerns(sequence) {
			continue
		}
		if !hashed {
			hash, hashed = hashKey(key), true
		}
		if found, ok = m.get(hash, key, sequence); ok {
			break
		}
	}
	return found, ok
}

func (v *view) getFromTables(dst, key []byte, h bloom.Hash) ([]byte, error) {
	for _, t := range v.tables {
		e, found, err := t.get(h, key)
		if err != nil {
			return dst, err
		}
		if !found {
			continue
		}
		if e.tombstone {
			break
		}
		return append(dst, e.value...), nil
	}
	return dst, ErrNotFound
}

// filters returns the filters of the tables, newest first.
func (v *view) filters() []*bloom.Filter {
	var filters []*bloom.Filter
	for _, t := range v.tables {
		if t.filter != nil {
			filters = append(filters, t.filter)
		}
	}
	return filters
}

// iterator merges all there is at a sequence number, tombstones included.
func (v *view) iterator(sequence uint64) *mergingIterator {
	sources := make([]internalIterator, 0, len(v.memtables)+len(v.tables))
	for _, m := range v.memtables {
		sources = append(sources, m.iterators(sequence)...)
	}
	for _, t := range v.tables {
		sources = append(sources, t.iterator())
	}
	return newMergingIterator(sources)
}
