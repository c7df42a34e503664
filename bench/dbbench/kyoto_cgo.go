//go:build cgo_rivals

package main

/*
#cgo LDFLAGS: -lkyotocabinet
#include <kclangc.h>
#include <stdlib.h>

// The library keeps its last error per thread, and Go can switch threads after a call: the error is
// read within the call.
static char *lookUp(KCDB *db, const char *key, size_t bytes, size_t *valueBytes, int *missing) {
	char *value = kcdbget(db, key, bytes, valueBytes);
	*missing = value == NULL && kcdbecode(db) == KCENOREC;
	return value;
}
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"
)

func init() { engines["kyoto"] = openKyoto }

// kyotoEngine is Kyoto Cabinet's B+ tree without protection from crashes.
type kyotoEngine struct{ db *C.KCDB }

func openKyoto(dir string, s sizing) (engine, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	name := C.CString(fmt.Sprintf("%s#type=kct#opts=l#msiz=%d#pccap=%d", filepath.Join(dir, "tree.kct"), s.cacheBytes, s.cacheBytes/4))
	defer C.free(unsafe.Pointer(name))
	e := kyotoEngine{C.kcdbnew()}
	if C.kcdbopen(e.db, name, C.KCOWRITER|C.KCOREADER|C.KCOCREATE) == 0 {
		return nil, e.failure()
	}
	return e, nil
}

func (e kyotoEngine) failure() error {
	return errors.New("kyoto: " + C.GoString(C.kcdbemsg(e.db)))
}

func (e kyotoEngine) set(key, value []byte) error {
	if C.kcdbset(e.db, cBytes(key), C.size_t(len(key)), cBytes(value), C.size_t(len(value))) == 0 {
		return e.failure()
	}
	return nil
}

// apply writes one entry after the other: there are no concurrent readers that need atomicity.
func (e kyotoEngine) apply(writes []write, sync bool) error {
	if err := eachWrite(writes, e.set, func(key []byte) error {
		if C.kcdbremove(e.db, cBytes(key), C.size_t(len(key))) == 0 {
			return e.failure()
		}
		return nil
	}); err != nil {
		return err
	}
	if sync && C.kcdbsync(e.db, 1, nil, nil) == 0 {
		return e.failure()
	}
	return nil
}

func (e kyotoEngine) flush() error { return nil }

func (e kyotoEngine) get(dst, key []byte) ([]byte, bool, error) {
	var n C.size_t
	var missing C.int
	value := C.lookUp(e.db, cBytes(key), C.size_t(len(key)), &n, &missing)
	switch {
	case missing != 0:
		return dst, false, nil
	case value == nil:
		return dst, false, e.failure()
	}
	dst = append(dst, goBytes(value, n)...)
	C.kcfree(unsafe.Pointer(value))
	return dst, true, nil
}

func (e kyotoEngine) iterator() (iterator, error) {
	return &kyotoIterator{cursor: C.kcdbcursor(e.db)}, nil
}

func (e kyotoEngine) close() error {
	if C.kcdbclose(e.db) == 0 {
		return e.failure()
	}
	C.kcdbdel(e.db)
	return nil
}

type kyotoIterator struct {
	cursor *C.KCCUR
	k, v   []byte
}

// show copies the entry that a move found.
func (i *kyotoIterator) show(moved C.int32_t) bool {
	if moved == 0 {
		return false
	}
	var keyBytes, valueBytes C.size_t
	var value *C.char
	key := C.kccurget(i.cursor, &keyBytes, &value, &valueBytes, 0)
	if key == nil {
		return false
	}
	i.k = append(i.k[:0], goBytes(key, keyBytes)...)
	i.v = append(i.v[:0], goBytes(value, valueBytes)...)
	C.kcfree(unsafe.Pointer(key))
	return true
}

func (i *kyotoIterator) First() bool { return i.show(C.kccurjump(i.cursor)) }
func (i *kyotoIterator) Last() bool  { return i.show(C.kccurjumpback(i.cursor)) }
func (i *kyotoIterator) Next() bool  { return i.show(C.kccurstep(i.cursor)) }
func (i *kyotoIterator) Prev() bool  { return i.show(C.kccurstepback(i.cursor)) }
func (i *kyotoIterator) SeekGE(key []byte) bool {
	return i.show(C.kccurjumpkey(i.cursor, cBytes(key), C.size_t(len(key))))
}
func (i *kyotoIterator) Key() []byte                  { return i.k }
func (i *kyotoIterator) ValueAndErr() ([]byte, error) { return i.v, nil }
func (i *kyotoIterator) Close() error {
	C.kccurdel(i.cursor)
	return nil
}
