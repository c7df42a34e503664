package lsm

import (
	"sync"

	"docstore/bloom"
	"docstore/internal/residency"
	"docstore/internal/vfs"
)

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

// Resident returns the share of the tables that is in memory, from a sample, and the bytes
// of the tables, 0 if the system does not tell the share.
func (db *DB) Resident() (share float64, mapped int64) {
	v, err := db.acquire()
	if err != nil {
		return 0, 0
	}
	defer v.unref()
	mappings := make([][]byte, len(v.tables))
	for i, t := range v.tables {
		mappings[i] = t.Mapped()
	}
	return residency.Share(mappings)
}
