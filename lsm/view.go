package lsm

import (
	"sync/atomic"

	"github.com/cockroachdb/errors"

	"docstore/bloom"
	"docstore/internal/invariants"
	"docstore/internal/vfs"
)

// view is what makes up the store at a moment: an immutable list of memtables
// and tables. Every flush, merge and new memtable makes another.
//
// Readers hold one without a lock. The invariants:
//
//   - refs counts the DB, for its current view, and each reader. It falls to 0
//     once and stays there: tryRef never raises it from 0.
//   - A view with refs above 0 holds a reference to each of its tables and
//     memtables; a table without references is unmapped. So whoever holds a
//     view may read its tables.
//   - A reader loads the current view and calls tryRef. Where that fails, the DB
//     had let go of the view, after it had stored a newer one: loading again
//     makes progress.
//   - The view struct itself is kept by the garbage collector for as long as
//     somebody has its address, so tryRef on a dead one is harmless.
type view struct {
	memtables []*memtable // newest first; in a DB that writes, [0] is being filled
	tables    []*table    // newest first
	refs      atomic.Int64
}

// newView returns a view that its caller holds.
func newView(memtables []*memtable, tables []*table) *view {
	v := &view{memtables: memtables, tables: tables}
	v.refs.Store(1)
	for _, m := range memtables {
		m.ref()
	}
	for _, t := range tables {
		t.ref()
	}
	return v
}

// tablesOnly returns a view of the tables of one that the caller holds, for
// work that takes its time and must not keep memtables.
func (v *view) tablesOnly() *view { return newView(nil, v.tables) }

func (v *view) tryRef() bool {
	for {
		n := v.refs.Load()
		if n == 0 {
			return false
		}
		if v.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (v *view) unref() {
	left := v.refs.Add(-1)
	invariants.References(left, "a view")
	if left > 0 {
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
		return dst, errors.Wrap(fault, "lsm: read a table")
	}
	return result, err
}

func (v *view) getFromMemtables(key []byte, sequence uint64) (found memVersion, ok bool) {
	if len(v.memtables) == 0 {
		return memVersion{}, false
	}
	hash := hashKey(key)
	for _, m := range v.memtables {
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
func (v *view) iterator(sequence uint64) internalIterator {
	sources := make([]internalIterator, 0, len(v.memtables)+len(v.tables))
	for _, m := range v.memtables {
		sources = append(sources, m.iterators(sequence)...)
	}
	for _, t := range v.tables {
		sources = append(sources, t.iterator())
	}
	return newMergingIterator(sources)
}
