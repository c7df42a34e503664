//go:build cgo_rivals

package main

/*
#cgo LDFLAGS: -lleveldb -lrocksdb
#include <leveldb/c.h>
#include <rocksdb/c.h>
#include <stdlib.h>

// The C interface of RocksDB is that of LevelDB with another prefix.
#define CALL(name, ...) (rocks ? rocksdb_##name(__VA_ARGS__) : leveldb_##name(__VA_ARGS__))
#define MAKE(name, ...) (rocks ? (void *)rocksdb_##name(__VA_ARGS__) : (void *)leveldb_##name(__VA_ARGS__))

static void *ldb_open(int rocks, char *dir, size_t memtable, size_t cache, char **err) {
	void *o = MAKE(options_create);
	CALL(options_set_create_if_missing, o, 1);
	CALL(options_set_compression, o, 0);
	CALL(options_set_write_buffer_size, o, memtable);
	if (!rocks) {
		leveldb_options_set_filter_policy(o, leveldb_filterpolicy_create_bloom(10));
		leveldb_options_set_cache(o, leveldb_cache_create_lru(cache));
		return leveldb_open(o, dir, err);
	}
	// Merge tables of similar size, as docstore does. It was 3 to 38 % faster than level compaction in
	// every phase of the article's benchmark.
	rocksdb_options_increase_parallelism(o, 2);
	rocksdb_options_set_compaction_style(o, rocksdb_universal_compaction);
	rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
	rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom_full(10));
	rocksdb_block_based_options_set_block_cache(table, rocksdb_cache_create_lru(cache));
	rocksdb_options_set_block_based_table_factory(o, table);
	return rocksdb_open(o, dir, err);
}

static void *ldb_reads(int rocks) { return MAKE(readoptions_create); }
static void *ldb_writes(int rocks, int sync) {
	void *o = MAKE(writeoptions_create);
	CALL(writeoptions_set_sync, o, sync);
	return o;
}
static void ldb_put(int rocks, void *db, void *o, char *k, size_t kn, char *v, size_t vn, char **err) { CALL(put, db, o, k, kn, v, vn, err); }
static char *ldb_get(int rocks, void *db, void *o, char *k, size_t kn, size_t *n, char **err) { return CALL(get, db, o, k, kn, n, err); }
static void ldb_free(int rocks, void *p) { CALL(free, p); }
static void ldb_close(int rocks, void *db) { CALL(close, db); }
static void *ldb_batch(int rocks) { return MAKE(writebatch_create); }
static void ldb_batch_put(int rocks, void *b, char *k, size_t kn, char *v, size_t vn) { CALL(writebatch_put, b, k, kn, v, vn); }
static void ldb_batch_delete(int rocks, void *b, char *k, size_t kn) { CALL(writebatch_delete, b, k, kn); }
static void ldb_batch_destroy(int rocks, void *b) { CALL(writebatch_destroy, b); }
static void ldb_write(int rocks, void *db, void *o, void *b, char **err) { CALL(write, db, o, b, err); }
static void *ldb_iterator(int rocks, void *db, void *o) { return MAKE(create_iterator, db, o); }
static int ldb_first(int rocks, void *it) { CALL(iter_seek_to_first, it); return CALL(iter_valid, it); }
static int ldb_last(int rocks, void *it) { CALL(iter_seek_to_last, it); return CALL(iter_valid, it); }
static int ldb_next(int rocks, void *it) { CALL(iter_next, it); return CALL(iter_valid, it); }
static int ldb_prev(int rocks, void *it) { CALL(iter_prev, it); return CALL(iter_valid, it); }
static int ldb_seek(int rocks, void *it, char *k, size_t kn) { CALL(iter_seek, it, k, kn); return CALL(iter_valid, it); }
static const char *ldb_key(int rocks, void *it, size_t *n) { return CALL(iter_key, it, n); }
static const char *ldb_value(int rocks, void *it, size_t *n) { return CALL(iter_value, it, n); }
static void ldb_end(int rocks, void *it, char **err) { CALL(iter_get_error, it, err); CALL(iter_destroy, it); }
*/
import "C"

import (
	"errors"
	"unsafe"
)

func init() {
	engines["leveldb"] = func(dir string, s sizing) (engine, error) { return openLevelDB(0, dir, s) }
	engines["rocksdb-universal"] = func(dir string, s sizing) (engine, error) { return openLevelDB(1, dir, s) }
}

// A leveldbEngine is LevelDB or RocksDB. Its options are never freed.
type leveldbEngine struct {
	rocks             C.int
	db                unsafe.Pointer
	reads             unsafe.Pointer
	unsynced, syncing unsafe.Pointer // options of writes
}

func openLevelDB(rocks C.int, dir string, s sizing) (engine, error) {
	name := C.CString(dir)
	defer C.free(unsafe.Pointer(name))
	var message *C.char
	db := C.ldb_open(rocks, name, C.size_t(s.memtableBytes), C.size_t(s.cacheBytes), &message)
	e := leveldbEngine{rocks, db, C.ldb_reads(rocks), C.ldb_writes(rocks, 0), C.ldb_writes(rocks, 1)}
	return e, e.err(message)
}

// err converts the error of a call and frees it.
func (e leveldbEngine) err(message *C.char) error {
	if message == nil {
		return nil
	}
	defer C.ldb_free(e.rocks, unsafe.Pointer(message))
	return errors.New(C.GoString(message))
}

func (e leveldbEngine) set(key, value []byte) error {
	var message *C.char
	C.ldb_put(e.rocks, e.db, e.unsynced, cBytes(key), C.size_t(len(key)), cBytes(value), C.size_t(len(value)), &message)
	return e.err(message)
}

func (e leveldbEngine) apply(writes []write, sync bool) error {
	b := C.ldb_batch(e.rocks)
	defer C.ldb_batch_destroy(e.rocks, b)
	for _, w := range writes {
		if w.remove {
			C.ldb_batch_delete(e.rocks, b, cBytes(w.key), C.size_t(len(w.key)))
		} else {
			C.ldb_batch_put(e.rocks, b, cBytes(w.key), C.size_t(len(w.key)), cBytes(w.value), C.size_t(len(w.value)))
		}
	}
	options := e.unsynced
	if sync {
		options = e.syncing
	}
	var message *C.char
	C.ldb_write(e.rocks, e.db, options, b, &message)
	return e.err(message)
}

// flush does nothing: dbbench waits until the process is idle.
func (e leveldbEngine) flush() error { return nil }

func (e leveldbEngine) get(dst, key []byte) ([]byte, bool, error) {
	var message *C.char
	var n C.size_t
	value := C.ldb_get(e.rocks, e.db, e.reads, cBytes(key), C.size_t(len(key)), &n, &message)
	if value == nil {
		return dst, false, e.err(message)
	}
	dst = append(dst, goBytes(value, n)...)
	C.ldb_free(e.rocks, unsafe.Pointer(value))
	return dst, true, nil
}

func (e leveldbEngine) iterator() (iterator, error) {
	return leveldbIterator{e, C.ldb_iterator(e.rocks, e.db, e.reads)}, nil
}

func (e leveldbEngine) close() error {
	C.ldb_close(e.rocks, e.db)
	return nil
}

type leveldbIterator struct {
	e  leveldbEngine
	it unsafe.Pointer
}

func (i leveldbIterator) First() bool { return C.ldb_first(i.e.rocks, i.it) != 0 }
func (i leveldbIterator) Last() bool  { return C.ldb_last(i.e.rocks, i.it) != 0 }
func (i leveldbIterator) Next() bool  { return C.ldb_next(i.e.rocks, i.it) != 0 }
func (i leveldbIterator) Prev() bool  { return C.ldb_prev(i.e.rocks, i.it) != 0 }
func (i leveldbIterator) SeekGE(key []byte) bool {
	return C.ldb_seek(i.e.rocks, i.it, cBytes(key), C.size_t(len(key))) != 0
}

func (i leveldbIterator) Key() []byte {
	var n C.size_t
	key := C.ldb_key(i.e.rocks, i.it, &n)
	return goBytes(key, n)
}

func (i leveldbIterator) ValueAndErr() ([]byte, error) {
	var n C.size_t
	value := C.ldb_value(i.e.rocks, i.it, &n)
	return goBytes(value, n), nil
}

func (i leveldbIterator) Close() error {
	var message *C.char
	C.ldb_end(i.e.rocks, i.it, &message)
	return i.e.err(message)
}
