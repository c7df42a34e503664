package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// engine is a store under test. get may be called from many goroutines at once,
// set from one.
type engine interface {
	// set writes without fsync, in the engine's fastest way. B-trees collect writes: all are
	// visible after flush. The slices are not kept.
	set(key, value []byte) error
	// apply writes entries together. They can be read when it returns; if sync is set, they
	// survive a power failure. No slice is kept.
	apply(writes []write, sync bool) error
	// flush ends a load. It waits for merges if the engine reports them.
	flush() error
	// get appends the value to dst.
	get(dst, key []byte) (value []byte, found bool, err error)
	iterator() (iterator, error)
	close() error
}

// write sets or removes an entry.
type write struct {
	key, value []byte
	remove     bool
}

// eachWrite sets and removes entries.
func eachWrite(writes []write, set func(key, value []byte) error, remove func(key []byte) error) (err error) {
	for _, w := range writes {
		if w.remove {
			err = remove(w.key)
		} else {
			err = set(w.key, w.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// iterator iterates over all entries. The results of key and value are valid until it moves.
type iterator interface {
	First() bool
	Last() bool
	Next() bool
	Prev() bool
	SeekGE(key []byte) bool
	Key() []byte
	ValueAndErr() ([]byte, error)
	Close() error // returns the first error of the engine
}

// sizing is the memory and data size of a run.
type sizing struct {
	memtableBytes int64
	cacheBytes    int64 // holds everything, unless memory is limited
	dataBytes     int64 // of all keys and values
	bloomBits     int   // a key, for docstore; 0 is its default
}

// engines open stores by name. All have no compression, and filters with ten bits per key, except
// docstore, which has its default of 2 % false positives.
var engines = map[string]func(dir string, s sizing) (engine, error){
	"docstore":  openDocstore,
	"pebble":    openPebble,
	"goleveldb": openGoleveldb,
	"badger":    openBadger,
	"bbolt":     openBbolt,
}

// cgoRivals need the build tag cgo_rivals.
var cgoRivals = []string{"leveldb", "rocksdb-universal", "kyoto", "lmdb"}

// available removes engines that are not built in and prints a message.
func available(names []string) (there []string) {
	var missing []string
	for _, name := range names {
		if engines[name] == nil && slices.Contains(cgoRivals, name) {
			missing = append(missing, name)
		} else {
			there = append(there, name)
		}
	}
	if len(missing) > 0 {
		fmt.Fprintf(os.Stderr, "dbbench: skipping %s: run bench/setup, then build with -tags cgo_rivals\n", strings.Join(missing, ", "))
	}
	return there
}

func openEngine(name, dir string, s sizing) (engine, error) {
	open := engines[name]
	if open == nil {
		return nil, fmt.Errorf("engine %q, want one of %s", name, strings.Join(engineNames(), ", "))
	}
	return open(dir, s)
}

func engineNames() []string {
	return slices.Sorted(maps.Keys(engines))
}
