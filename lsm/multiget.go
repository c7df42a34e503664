package lsm

import (
	"sync"

	"docstore/bloom"
	"docstore/internal/residency"
	"docstore/internal/vfs"
	"docstore/lsm/internal/kv"
	"docstore/lsm/internal/memtable"
	"docstore/lsm/internal/table"
)

// MultiGet looks up several keys in one state of the store. It calls fn once per key,
// in any order, with the key's index and its value or error. The value is valid until
// fn returns. MultiGet stops at the first error of fn and returns it.
//
// It is faster than the same number of calls of Get, which spend most of their time on
// cache misses, one after the other. MultiGet takes each step for many keys before the
// next step, so that their cache misses overlap.
func (db *DB) MultiGet(keys [][]byte, fn func(i int, value []byte, err error) error) error {
	v, sequence, err := db.acquireAt()
	if err != nil {
		return err
	}
	defer v.unref()
	var g group
	var value []byte
	for begin := 0; begin < len(keys); begin += groupKeys {
		g.find(v, keys[begin:min(begin+groupKeys, len(keys))], sequence)
		for i := range g.lookups[:g.count] {
			var err error
			if value, err = valueOf(&g.lookups[i], value[:0]); err != nil {
				err = fn(begin+i, nil, err)
			} else {
				err = fn(begin+i, value, nil)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// groupKeys is the number of keys looked up together: more than the cache lines that a
// processor fetches concurrently, and few enough that prefetched lines remain in the
// cache.
const groupKeys = 32

// group is a group of keys looked up together.
type group struct {
	count   int
	lookups [groupKeys]table.Lookup
	hashes  [groupKeys]uint32 // of the keys, for memtables
	// Indexes of lookups; pointers would move the group to the heap.
	open  [groupKeys]uint8 // not answered by a newer memtable or table
	asked [groupKeys]uint8 // subset that the current memtable or table must answer
}

// valueOf appends the result of a lookup to dst.
func valueOf(l *table.Lookup, dst []byte) ([]byte, error) {
	if l.Err == nil && (!l.Answered || l.Entry.Tombstone) {
		return dst, ErrNotFound
	}
	return l.AppendValue(dst)
}

// find looks up keys in a view at a sequence number.
func (g *group) find(v *view, keys [][]byte, sequence uint64) {
	g.count = len(keys)
	open := g.open[:0]
	for i, key := range keys {
		g.lookups[i] = table.Lookup{Key: key}
		open = append(open, uint8(i))
	}
	hashed := false
	for _, m := range v.memtables {
		if !m.Concerns(sequence) {
			continue
		}
		for i := range keys {
			if !hashed {
				g.hashes[i] = memtable.Hash(keys[i])
			}
		}
		hashed = true
		open = g.askMemtable(m, open, sequence)
	}
	for _, i := range open {
		l := &g.lookups[i]
		l.Hash = bloom.HashKey(l.Key)
	}
	fault := vfs.Guard(func() {
		for _, t := range v.tables {
			open = t.GetMany(g.lookups[:], open, g.asked[:0])
		}
	})
	if fault == nil {
		return
	}
	for i := range g.lookups[:g.count] { // one by one, so that only affected keys fail
		if l := &g.lookups[i]; !l.Answered {
			l.Answered = true
			l.Entry.Value, l.Err = v.get(nil, l.Key, sequence)
		}
	}
}

// askMemtable looks up keys in a memtable and returns the unanswered ones.
func (g *group) askMemtable(m *memtable.Memtable, open []uint8, sequence uint64) (left []uint8) {
	for _, i := range open {
		m.PrefetchSlot(g.hashes[i])
	}
	left = open[:0]
	asked := g.asked[:0]
	for _, i := range open {
		if m.PrefetchRun(g.hashes[i]) {
			asked = append(asked, i)
		} else {
			left = append(left, i)
		}
	}
	for _, i := range asked {
		l := &g.lookups[i]
		if found, ok := m.Get(g.hashes[i], l.Key, sequence); ok {
			l.Answered, l.Entry = true, kv.Entry{Value: found.Value, Tombstone: found.Tombstone}
		} else {
			left = append(left, i)
		}
	}
	return left
}

// coldReads are the ranges of calls of ReadAhead that have ended.
var coldReads = sync.Pool{New: func() any { return new(residency.Ranges) }}

// ReadAhead asks the kernel to read the blocks that Get and MultiGet read for the keys, so
// that the disk reads them concurrently. It costs more than it saves if they are in memory.
// It reports no errors. Filters count these lookups, too.
func (db *DB) ReadAhead(keys [][]byte) {
	v, err := db.acquire()
	if err != nil {
		return
	}
	defer v.unref()
	ranges := coldReads.Get().(*residency.Ranges)
	_ = vfs.Guard(func() { // a lookup reports a fault
		for _, key := range keys {
			h := bloom.HashKey(key)
			for _, t := range v.tables {
				if block := t.BlockOf(h, key); block != nil {
					ranges.Add(block)
					break // a filter is rarely wrong
				}
			}
		}
	})
	ranges.Read()
	coldReads.Put(ranges)
}
