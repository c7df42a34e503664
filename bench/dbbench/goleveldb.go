package main

import (
	"errors"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/filter"
	leveldbiterator "github.com/syndtr/goleveldb/leveldb/iterator"
	"github.com/syndtr/goleveldb/leveldb/opt"
)

type goleveldbEngine struct{ db *leveldb.DB }

func openGoleveldb(dir string, s sizing) (engine, error) {
	db, err := leveldb.OpenFile(dir, &opt.Options{
		Filter:             filter.NewBloomFilter(10),
		WriteBuffer:        int(s.memtableBytes),
		BlockCacheCapacity: int(s.cacheBytes),
		Compression:        opt.NoCompression,
	})
	return goleveldbEngine{db}, err
}

func (e goleveldbEngine) set(key, value []byte) error { return e.db.Put(key, value, nil) }

func (e goleveldbEngine) apply(writes []write, sync bool) error {
	b := new(leveldb.Batch)
	for _, w := range writes {
		if w.remove {
			b.Delete(w.key)
		} else {
			b.Put(w.key, w.value)
		}
	}
	return e.db.Write(b, &opt.WriteOptions{Sync: sync})
}

// flush does nothing: dbbench waits until the process is idle.
func (e goleveldbEngine) flush() error { return nil }

func (e goleveldbEngine) get(dst, key []byte) ([]byte, bool, error) {
	value, err := e.db.Get(key, nil)
	if errors.Is(err, leveldb.ErrNotFound) {
		return dst, false, nil
	}
	return append(dst, value...), err == nil, err
}

func (e goleveldbEngine) iterator() (iterator, error) {
	return goleveldbIterator{e.db.NewIterator(nil, nil)}, nil
}

func (e goleveldbEngine) close() error { return e.db.Close() }

type goleveldbIterator struct{ leveldbiterator.Iterator }

func (i goleveldbIterator) SeekGE(key []byte) bool       { return i.Seek(key) }
func (i goleveldbIterator) ValueAndErr() ([]byte, error) { return i.Value(), nil }
func (i goleveldbIterator) Close() error {
	i.Release()
	return i.Error()
}
