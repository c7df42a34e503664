// Package memtable holds the newest writes of a store in memory. A Memtable keeps all
// versions of each key, is looked up by key and sequence number, and is sorted only when
// an iterator or a flush needs the order.
//
// It owns the layout of the writes in memory and the order of the keys. It must not know
// files, logs, batches, views and the budget; its owner counts references and pins with
// it, and passes functions that count its memory.
//
// # Concurrency
//
// One goroutine at a time writes, any number read, without locks: see versionMap. The
// creation of iterators takes a lock that writes and lookups do not take.
//
// # Layout
//
//	slots  | hash, ref | 0 | hash, ref | ...      a hash table, two thirds full at most
//	           |                 |
//	           v                 v
//	region | newest, key, version | newest, key, version | later version | ...
//
// # Limits
//
// References in the region have 32 bits: MaxRoomBytes.
package memtable
