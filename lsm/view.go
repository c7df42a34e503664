package lsm

import (
	"slices"
	"sync/atomic"

	"docstore/bloom"
	"docstore/internal/stripe"
	"docstore/internal/vfs"
	"docstore/lsm/internal/kv"
	"docstore/lsm/internal/memtable"
	"docstore/lsm/internal/table"
)

// view is a version of the store: an immutable list of memtables and tables. Every
// flush, merge and new memtable creates another.
//
// Readers reference a view without a lock and without writing to a shared cache line.
// Invariants:
//
//   - A view has a reference to each of its tables and memtables until it is released; a
//     table without references is unmapped. So a reader of a view may read its tables.
//   - A view is released exactly once, after it is retired and has no readers.
//   - A reader of the DB's current view increments its reader count and then checks that
//     the view is still current. If it is, it was not retired when the reader was
//     counted, because the DB stores a newer view before it retires the old one. If it
//     is not, the reader retries with the newer view.
//   - While a view has a reader, more readers may be added at any time.
//   - The view struct is garbage-collected, so counting readers of a released view is
//     harmless.
type view struct {
	memtables []*memtable.Memtable // newest first; in a DB open for writing [0] is the current one
	tables    []*table.Reader      // newest first
	readers   stripe.Readers
	retired   atomic.Bool
	released  atomic.Bool
}

// newView returns a view that the caller must retire.
func newView(memtables []*memtable.Memtable, tables []*table.Reader) *view {
	v := &view{memtables: memtables, tables: tables}
	for _, m := range memtables {
		m.Ref()
	}
	for _, t := range tables {
		t.Ref()
	}
	return v
}

// tablesOnly returns a view of the tables of v, which the caller references.
// Long-running work uses it to avoid pinning memtables. The caller must retire it.
func (v *view) tablesOnly() *view { return newView(nil, v.tables) }

// ref adds a reader.
func (v *view) ref() { v.readers.Enter() }

// unref removes a reader.
func (v *view) unref() {
	v.readers.Leave()
	if v.retired.Load() {
		v.releaseIfUnused()
	}
}

// retire releases the view as soon as it has no readers. The view's creator calls it
// once no new reader can find the view.
func (v *view) retire() {
	v.retired.Store(true)
	v.releaseIfUnused()
}

func (v *view) releaseIfUnused() {
	if !v.readers.None() || v.released.Swap(true) {
		return
	}
	for _, m := range v.memtables {
		m.Unref()
	}
	for _, t := range v.tables {
		t.Unref()
	}
}

// get appends to dst the value of key at a sequence number.
func (v *view) get(dst, key []byte, sequence uint64) ([]byte, error) {
	if found, ok := v.getFromMemtables(key, sequence); ok {
		if found.Tombstone {
			return dst, ErrNotFound
		}
		return append(dst, found.Value...), nil
	}
	if len(v.tables) == 0 {
		return dst, ErrNotFound
	}
	h := bloom.HashKey(key)
	var err error
	result := dst
	if fault := vfs.Guard(func() { result, err = v.getFromTables(dst, key, h) }); fault != nil {
		return v.getOneByOne(dst, key, false)
	}
	return result, err
}

// getVerified is get with verification of the value's block.
func (v *view) getVerified(dst, key []byte, sequence uint64) ([]byte, error) {
	if found, ok := v.getFromMemtables(key, sequence); ok {
		if found.Tombstone {
			return dst, ErrNotFound
		}
		return append(dst, found.Value...), nil
	}
	return v.getOneByOne(dst, key, true)
}

// getOneByOne guards each table separately, so that an error names the table.
func (v *view) getOneByOne(dst, key []byte, verified bool) ([]byte, error) {
	h := bloom.HashKey(key)
	for _, t := range v.tables {
		result, answer := dst, table.None
		err := t.Guard(func() (err error) {
			if verified {
				result, answer, err = t.GetVerified(dst, h, key)
			} else {
				result, answer, err = t.Get(dst, h, key)
			}
			return err
		})
		switch {
		case err != nil:
			return dst, err
		case answer == table.Deleted:
			return dst, ErrNotFound
		case answer == table.Found:
			return result, nil
		}
	}
	return dst, ErrNotFound
}

func (v *view) getFromMemtables(key []byte, sequence uint64) (found memtable.Version, ok bool) {
	hash, hashed := uint32(0), false
	for _, m := range v.memtables {
		if !m.Concerns(sequence) {
			continue
		}
		if !hashed {
			hash, hashed = memtable.Hash(key), true
		}
		if found, ok = m.Get(hash, key, sequence); ok {
			break
		}
	}
	return found, ok
}

func (v *view) getFromTables(dst, key []byte, h bloom.Hash) ([]byte, error) {
	for _, t := range v.tables {
		result, answer, err := t.Get(dst, h, key)
		switch {
		case err != nil:
			return dst, err
		case answer == table.Deleted:
			return dst, ErrNotFound
		case answer == table.Found:
			return result, nil
		}
	}
	return dst, ErrNotFound
}

// filters returns the filters of the tables, newest first.
func (v *view) filters() []*bloom.Filter {
	var filters []*bloom.Filter
	for _, t := range v.tables {
		if t.Filter != nil {
			filters = append(filters, t.Filter)
		}
	}
	return filters
}

// addTags gives tags to tables that have none, as far as their limit permits: to the oldest
// first, which answer most lookups.
func (v *view) addTags() {
	for _, t := range slices.Backward(v.tables) {
		t.AddTags()
	}
}

// iterator merges all entries at a sequence number, including tombstones.
func (v *view) iterator(sequence uint64) *kv.MergingIterator {
	sources := make([]kv.Iterator, 0, len(v.memtables)+len(v.tables))
	for _, m := range v.memtables {
		sources = append(sources, m.Iterators(sequence)...)
	}
	for _, t := range v.tables {
		sources = append(sources, t.NewIterator())
	}
	return kv.NewMergingIterator(sources)
}
