package main

import (
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
)

var bboltBucket = []byte("bench")

// bboltEngine is a B-tree under mmap.
type bboltEngine struct {
	db      *bbolt.DB
	pending batch
}

func openBbolt(dir string, _ sizing) (engine, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	db, err := bbolt.Open(filepath.Join(dir, "bbolt"), 0o644, &bbolt.Options{
		NoSync: true, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType,
	})
	if err != nil {
		return nil, err
	}
	return &bboltEngine{db: db}, db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bboltBucket)
		return err
	})
}

func (e *bboltEngine) set(key, value []byte) error {
	if e.pending.add(key, value) {
		return e.flush()
	}
	return nil
}

func (e *bboltEngine) apply(writes []write, sync bool) error {
	if err := e.flush(); err != nil {
		return err
	}
	err := e.db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(bboltBucket)
		return eachWrite(writes, bucket.Put, bucket.Delete)
	})
	if err != nil || !sync {
		return err
	}
	return e.db.Sync()
}

func (e *bboltEngine) flush() error {
	if e.pending.empty() {
		return nil
	}
	return e.db.Update(func(tx *bbolt.Tx) error { return e.pending.drain(tx.Bucket(bboltBucket).Put) })
}

func (e *bboltEngine) get(dst, key []byte) (value []byte, found bool, err error) {
	value = dst
	err = e.db.View(func(tx *bbolt.Tx) error {
		got := tx.Bucket(bboltBucket).Get(key)
		value, found = append(value, got...), got != nil
		return nil
	})
	return value, found, err
}

func (e *bboltEngine) iterator() (iterator, error) {
	tx, err := e.db.Begin(false)
	if err != nil {
		return nil, err
	}
	return &bboltIterator{tx: tx, cursor: tx.Bucket(bboltBucket).Cursor()}, nil
}

func (e *bboltEngine) close() error { return e.db.Close() }

type bboltIterator struct {
	tx     *bbolt.Tx
	cursor *bbolt.Cursor
	k, v   []byte
}

func (i *bboltIterator) at(k, v []byte) bool {
	i.k, i.v = k, v
	return k != nil
}

func (i *bboltIterator) First() bool                  { return i.at(i.cursor.First()) }
func (i *bboltIterator) Last() bool                   { return i.at(i.cursor.Last()) }
func (i *bboltIterator) Next() bool                   { return i.at(i.cursor.Next()) }
func (i *bboltIterator) Prev() bool                   { return i.at(i.cursor.Prev()) }
func (i *bboltIterator) SeekGE(key []byte) bool       { return i.at(i.cursor.Seek(key)) }
func (i *bboltIterator) Key() []byte                  { return i.k }
func (i *bboltIterator) ValueAndErr() ([]byte, error) { return i.v, nil }
func (i *bboltIterator) Close() error                 { return i.tx.Rollback() }
