package lsm

import (
	"docstore/bloom"
	"docstore/internal/prefetch"
	"docstore/internal/vfs"
	"docstore/lsm/internal/kv"
	"docstore/lsm/internal/memtable"
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
			if value, err = g.lookups[i].value(value[:0]); err != nil {
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
	lookups [groupKeys]lookup
	// Indexes of lookups; pointers would move the group to the heap.
	open  [groupKeys]uint8 // not answered by a newer memtable or table
	asked [groupKeys]uint8 // subset that the current memtable or table must answer
}

// lookup is the lookup of one key.
type lookup struct {
	key     []byte
	memHash uint32 // hash of the key for memtables

	hash  bloom.Hash
	probe bloom.Probe // of the current table's filter
	place uint64      // prefix of the key in the current table's index
	at    int         // block in the current table

	answered bool
	table    *table   // table with the answer; nil for a memtable
	entry    kv.Entry // the answer
	err      error    // or why there is none
}

func (l *lookup) answer(e kv.Entry, err error) {
	if err == nil && e.Tombstone {
		err = ErrNotFound
	}
	l.answered, l.entry, l.err = true, e, err
}

// value appends the result to dst.
func (l *lookup) value(dst []byte) (value []byte, err error) {
	if l.err != nil {
		return dst, l.err
	}
	value = dst
	if fault := vfs.Guard(func() { value = append(value, l.entry.Value...) }); fault != nil {
		return dst, l.table.failed(fault)
	}
	return value, nil
}

// find looks up keys in a view at a sequence number.
func (g *group) find(v *view, keys [][]byte, sequence uint64) {
	g.count = len(keys)
	open := g.open[:0]
	for i, key := range keys {
		g.lookups[i] = lookup{key: key}
		open = append(open, uint8(i))
	}
	hashed := false
	for _, m := range v.memtables {
		if !m.Concerns(sequence) {
			continue
		}
		for i := range keys {
			if !hashed {
				g.lookups[i].memHash = memtable.Hash(keys[i])
			}
		}
		hashed = true
		open = g.askMemtable(m, open, sequence)
	}
	for _, i := range open {
		l := &g.lookups[i]
		l.hash = bloom.HashKey(l.key)
	}
	fault := vfs.Guard(func() {
		for _, t := range v.tables {
			open = g.askTable(t, open)
		}
	})
	for i := range g.lookups[:g.count] {
		l := &g.lookups[i]
		switch {
		case l.answered:
		case fault != nil: // retry one by one, so that only affected keys fail
			value, err := v.get(nil, l.key, sequence)
			l.answer(kv.Entry{Value: value}, err)
		default:
			l.answer(kv.Entry{}, ErrNotFound)
		}
	}
}

// askMemtable looks up keys in a memtable and returns the unanswered ones.
func (g *group) askMemtable(m *memtable.Memtable, open []uint8, sequence uint64) (left []uint8) {
	for _, i := range open {
		m.PrefetchSlot(g.lookups[i].memHash)
	}
	left = open[:0]
	asked := g.asked[:0]
	for _, i := range open {
		if m.PrefetchRun(g.lookups[i].memHash) {
			asked = append(asked, i)
		} else {
			left = append(left, i)
		}
	}
	for _, i := range asked {
		l := &g.lookups[i]
		if found, ok := m.Get(l.memHash, l.key, sequence); ok {
			l.answer(kv.Entry{Value: found.Value, Tombstone: found.Tombstone}, nil)
		} else {
			left = append(left, i)
		}
	}
	return left
}

// askTable looks up keys in a table and returns the unanswered ones.
func (g *group) askTable(t *table, open []uint8) (left []uint8) {
	left = open[:0]
	asked := g.asked[:0]
	for _, i := range open {
		l := &g.lookups[i]
		var covered bool
		if l.place, covered = t.place(l.key); !covered {
			left = append(left, i)
			continue
		}
		if t.filter != nil {
			l.probe = t.filter.Probe(l.key)
			l.probe.Prefetch(l.hash)
		}
		asked = append(asked, i)
	}
	maybe := asked[:0]
	for _, i := range asked {
		l := &g.lookups[i]
		if t.filter != nil && !l.probe.MayContain(l.hash) {
			left = append(left, i)
			continue
		}
		t.prefetchWords(l.place)
		maybe = append(maybe, i)
	}
	for _, i := range maybe {
		l := &g.lookups[i]
		l.at = t.find(l.place, l.key)
		t.prefetchKeys(l.at)
	}
	for _, i := range maybe {
		l := &g.lookups[i]
		e, found, err := t.search(l.at, l.key)
		if !found && err == nil {
			if t.filter != nil {
				l.probe.Missed()
			}
			left = append(left, i)
			continue
		}
		prefetch.Bytes(e.Value[:min(len(e.Value), prefetchedValueBytes)])
		l.table = t
		l.answer(e, err)
	}
	return left
}
