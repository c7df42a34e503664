//go:build cgo_rivals

package main

/*
#cgo LDFLAGS: -llmdb
#include <lmdb.h>
#include <stdlib.h>

static int bench_put(MDB_txn *txn, MDB_dbi dbi, char *k, size_t kn, char *v, size_t vn) {
	MDB_val key = {kn, k}, value = {vn, v};
	return mdb_put(txn, dbi, &key, &value, 0);
}

static int bench_del(MDB_txn *txn, MDB_dbi dbi, char *k, size_t kn) {
	MDB_val key = {kn, k};
	return mdb_del(txn, dbi, &key, NULL);
}

static int bench_get(MDB_txn *txn, MDB_dbi dbi, char *k, size_t kn, MDB_val *value) {
	MDB_val key = {kn, k};
	return mdb_get(txn, dbi, &key, value);
}

static int bench_move(MDB_cursor *c, char *k, size_t kn, MDB_val *key, MDB_val *value, MDB_cursor_op op) {
	key->mv_data = k, key->mv_size = kn;
	return mdb_cursor_get(c, key, value, op);
}
*/
import "C"

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"unsafe"
)

func init() { engines["lmdb"] = openLMDB }

// lmdbEngine is a B-tree under mmap.
type lmdbEngine struct {
	env     *C.MDB_env
	dbi     C.MDB_dbi
	pending batch
	idle    sync.Pool // of *C.MDB_txn that were reset
}

func lmdbError(code C.int) error {
	if code == 0 {
		return nil
	}
	return errors.New("lmdb: " + C.GoString(C.mdb_strerror(code)))
}

func openLMDB(dir string, s sizing) (engine, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	e := new(lmdbEngine)
	name := C.CString(dir)
	defer C.free(unsafe.Pointer(name))
	C.mdb_env_create(&e.env)
	C.mdb_env_set_mapsize(e.env, C.size_t(max(1<<30, 8*s.dataBytes)))
	if err := lmdbError(C.mdb_env_open(e.env, name, C.MDB_NOSYNC|C.MDB_NOTLS|C.MDB_NORDAHEAD, 0o644)); err != nil {
		return nil, err
	}
	var txn *C.MDB_txn
	if err := lmdbError(C.mdb_txn_begin(e.env, nil, 0, &txn)); err != nil {
		return nil, err
	}
	if err := lmdbError(C.mdb_dbi_open(txn, nil, 0, &e.dbi)); err != nil {
		return nil, err
	}
	return e, lmdbError(C.mdb_txn_commit(txn))
}

func (e *lmdbEngine) set(key, value []byte) error {
	if e.pending.add(key, value) {
		return e.flush()
	}
	return nil
}

func (e *lmdbEngine) flush() error {
	if e.pending.empty() {
		return nil
	}
	return e.update(func(txn *C.MDB_txn) error {
		return e.pending.drain(func(key, value []byte) error { return e.put(txn, key, value) })
	})
}

func (e *lmdbEngine) put(txn *C.MDB_txn, key, value []byte) error {
	return lmdbError(C.bench_put(txn, e.dbi, cBytes(key), C.size_t(len(key)), cBytes(value), C.size_t(len(value))))
}

func (e *lmdbEngine) apply(writes []write, sync bool) error {
	if err := e.flush(); err != nil {
		return err
	}
	err := e.update(func(txn *C.MDB_txn) error {
		return eachWrite(writes,
			func(key, value []byte) error { return e.put(txn, key, value) },
			func(key []byte) error { return lmdbError(C.bench_del(txn, e.dbi, cBytes(key), C.size_t(len(key)))) })
	})
	if err != nil || !sync {
		return err
	}
	return lmdbError(C.mdb_env_sync(e.env, 1))
}

// update runs work in a transaction.
func (e *lmdbEngine) update(work func(txn *C.MDB_txn) error) error {
	runtime.LockOSThread() // a transaction that writes belongs to its thread
	defer runtime.UnlockOSThread()
	var txn *C.MDB_txn
	if err := lmdbError(C.mdb_txn_begin(e.env, nil, 0, &txn)); err != nil {
		return err
	}
	if err := work(txn); err != nil {
		C.mdb_txn_abort(txn)
		return err
	}
	return lmdbError(C.mdb_txn_commit(txn))
}

// begin returns a transaction that reads the present state.
func (e *lmdbEngine) begin() (txn *C.MDB_txn, err error) {
	if txn, ok := e.idle.Get().(*C.MDB_txn); ok {
		return txn, lmdbError(C.mdb_txn_renew(txn))
	}
	return txn, lmdbError(C.mdb_txn_begin(e.env, nil, C.MDB_RDONLY, &txn))
}

func (e *lmdbEngine) get(dst, key []byte) ([]byte, bool, error) {
	txn, err := e.begin()
	if err != nil {
		return dst, false, err
	}
	var value C.MDB_val
	code := C.bench_get(txn, e.dbi, cBytes(key), C.size_t(len(key)), &value)
	if code == 0 {
		dst = append(dst, unsafe.Slice((*byte)(value.mv_data), int(value.mv_size))...)
	}
	C.mdb_txn_reset(txn)
	e.idle.Put(txn)
	if code == C.MDB_NOTFOUND {
		return dst, false, nil
	}
	return dst, code == 0, lmdbError(code)
}

func (e *lmdbEngine) iterator() (iterator, error) {
	i := new(lmdbIterator)
	if err := lmdbError(C.mdb_txn_begin(e.env, nil, C.MDB_RDONLY, &i.txn)); err != nil {
		return nil, err
	}
	return i, lmdbError(C.mdb_cursor_open(i.txn, e.dbi, &i.cursor))
}

func (e *lmdbEngine) close() error {
	C.mdb_env_close(e.env)
	return nil
}

type lmdbIterator struct {
	txn    *C.MDB_txn
	cursor *C.MDB_cursor
	k, v   []byte
	err    error
}

func (i *lmdbIterator) move(op C.MDB_cursor_op, target []byte) bool {
	var key, value C.MDB_val
	code := C.bench_move(i.cursor, cBytes(target), C.size_t(len(target)), &key, &value, op)
	if code != 0 {
		if code != C.MDB_NOTFOUND {
			i.err = lmdbError(code)
		}
		return false
	}
	i.k = unsafe.Slice((*byte)(key.mv_data), int(key.mv_size))
	i.v = unsafe.Slice((*byte)(value.mv_data), int(value.mv_size))
	return true
}

func (i *lmdbIterator) First() bool                  { return i.move(C.MDB_FIRST, nil) }
func (i *lmdbIterator) Last() bool                   { return i.move(C.MDB_LAST, nil) }
func (i *lmdbIterator) Next() bool                   { return i.move(C.MDB_NEXT, nil) }
func (i *lmdbIterator) Prev() bool                   { return i.move(C.MDB_PREV, nil) }
func (i *lmdbIterator) SeekGE(key []byte) bool       { return i.move(C.MDB_SET_RANGE, key) }
func (i *lmdbIterator) Key() []byte                  { return i.k }
func (i *lmdbIterator) ValueAndErr() ([]byte, error) { return i.v, nil }
func (i *lmdbIterator) Close() error {
	C.mdb_cursor_close(i.cursor)
	C.mdb_txn_abort(i.txn)
	return i.err
}
