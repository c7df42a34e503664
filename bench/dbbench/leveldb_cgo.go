//go:build cgo_rivals

package main

/*
#cgo LDFLAGS: -lleveldb
#include <leveldb/c.h>
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"unsafe"
)

func init() { engines["leveldb"] = openLevelDB }

// leveldbEngine lives as long as the process: its options are never freed.
type leveldbEngine struct {
	db            *C.leveldb_t
	reads         *C.leveldb_readoptions_t
	write, synced *C.leveldb_writeoptions_t
}

// leveldbError takes over what a call left as its error.
func leveldbError(message *C.char) error {
	if message == nil {
		return nil
	}
	defer C.leveldb_free(unsafe.Pointer(message))
	return errors.New("leveldb: " + C.GoString(message))
}

func openLevelDB(dir string, s sizing) (engine, error) {
	o := C.leveldb_options_create()
	C.leveldb_options_set_create_if_missing(o, 1)
	C.leveldb_options_set_compression(o, C.leveldb_no_compression)
	C.leveldb_options_set_write_buffer_size(o, C.size_t(s.memtableBytes))
	C.leveldb_options_set_filter_policy(o, C.leveldb_filterpolicy_create_bloom(10))
	C.leveldb_options_set_cache(o, C.leveldb_cache_create_lru(C.size_t(s.cacheBytes)))
	name := C.CString(dir)
	defer C.free(unsafe.Pointer(name))
	var message *C.char
	db := C.leveldb_open(o, name, &message)
	synced := C.leveldb_writeoptions_create()
	C.leveldb_writeoptions_set_sync(synced, 1)
	return &leveldbEngine{db, C.leveldb_readoptions_create(), C.leveldb_writeoptions_create(), synced}, leveldbError(message)
}

func (e *leveldbEngine) set(key, value []byte) error {
	var message *C.char
	C.leveldb_put(e.db, e.write, cBytes(key), C.size_t(len(key)), cBytes(value), C.size_t(len(value)), &message)
	return leveldbError(message)
}

func (e *leveldbEngine) apply(writes []write, sync bool) error {
	b := C.leveldb_writebatch_create()
	defer C.leveldb_writebatch_destroy(b)
	for _, w := range writes {
		if w.remove {
			C.leveldb_writebatch_delete(b, cBytes(w.key), C.size_t(len(w.key)))
		} else {
			C.leveldb_writebatch_put(b, cBytes(w.key), C.size_t(len(w.key)), cBytes(w.value), C.size_t(len(w.value)))
		}
	}
	how := e.write
	if sync {
		how = e.synced
	}
	var message *C.char
	C.leveldb_write(e.db, how, b, &message)
	return leveldbError(message)
}

func (e *leveldbEngine) compact() error {
	C.leveldb_compact_range(e.db, nil, 0, nil, 0)
	return nil
}

// flush has nothing more to call: the driver waits until the process is quiet.
func (e *leveldbEngine) flush() error { return nil }

func (e *leveldbEngine) get(dst, key []byte) ([]byte, bool, error) {
	var message *C.char
	var n C.size_t
	value := C.leveldb_get(e.db, e.reads, cBytes(key), C.size_t(len(key)), &n, &message)
	if value == nil {
		return dst, false, leveldbError(message)
	}
	dst = append(dst, unsafe.Slice((*byte)(unsafe.Pointer(value)), int(n))...)
	C.leveldb_free(unsafe.Pointer(value))
	return dst, true, nil
}

func (e *leveldbEngine) iterator() (iterator, error) {
	return leveldbIterator{C.leveldb_create_iterator(e.db, e.reads)}, nil
}

func (e *leveldbEngine) close() error {
	C.leveldb_close(e.db)
	return nil
}

type leveldbIterator struct{ it *C.leveldb_iterator_t }

func (i leveldbIterator) valid() bool { return C.leveldb_iter_valid(i.it) != 0 }

func (i leveldbIterator) first() bool {
	C.leveldb_iter_seek_to_first(i.it)
	return i.valid()
}

func (i leveldbIterator) last() bool {
	C.leveldb_iter_seek_to_last(i.it)
	return i.valid()
}

func (i leveldbIterator) next() bool {
	C.leveldb_iter_next(i.it)
	return i.valid()
}

func (i leveldbIterator) prev() bool {
	C.leveldb_iter_prev(i.it)
	return i.valid()
}

func (i leveldbIterator) seek(key []byte) bool {
	C.leveldb_iter_seek(i.it, cBytes(key), C.size_t(len(key)))
	return i.valid()
}

func (i leveldbIterator) key() []byte {
	var n C.size_t
	key := C.leveldb_iter_key(i.it, &n)
	return unsafe.Slice((*byte)(unsafe.Pointer(key)), int(n))
}

func (i leveldbIterator) value() ([]byte, error) {
	var n C.size_t
	value := C.leveldb_iter_value(i.it, &n)
	return unsafe.Slice((*byte)(unsafe.Pointer(value)), int(n)), nil
}

func (i leveldbIterator) close() error {
	var message *C.char
	C.leveldb_iter_get_error(i.it, &message)
	C.leveldb_iter_destroy(i.it)
	return leveldbError(message)
}
