package main

import (
	"bytes"
	"errors"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

// badgerEngine writes with a WriteBatch, which is the fastest way. It has no block cache, because
// tables are mapped and not compressed.
type badgerEngine struct {
	db    *badger.DB
	batch *badger.WriteBatch
}

func openBadger(dir string, s sizing) (engine, error) {
	db, err := badger.Open(badger.DefaultOptions(dir).
		WithCompression(options.None).
		WithBlockCacheSize(0).
		WithMemTableSize(s.memtableBytes).
		WithBloomFalsePositive(0.01).
		WithSyncWrites(false).
		WithDetectConflicts(false).
		WithMetricsEnabled(false).
		WithLogger(nil))
	if err != nil {
		return nil, err
	}
	return &badgerEngine{db: db}, nil
}

func (e *badgerEngine) set(key, value []byte) error {
	if e.batch == nil {
		e.batch = e.db.NewWriteBatch()
	}
	return e.batch.Set(bytes.Clone(key), bytes.Clone(value)) // badger keeps the slices
}

func (e *badgerEngine) apply(writes []write, sync bool) error {
	if err := e.flush(); err != nil {
		return err
	}
	err := e.db.Update(func(txn *badger.Txn) error {
		return eachWrite(writes, txn.Set, txn.Delete) // badger does not keep the slices after Update
	})
	if err != nil || !sync {
		return err
	}
	return e.db.Sync()
}

func (e *badgerEngine) flush() error {
	if e.batch == nil {
		return nil
	}
	err := e.batch.Flush()
	e.batch = nil
	return err
}

func (e *badgerEngine) get(dst, key []byte) (value []byte, found bool, err error) {
	err = e.db.View(func(txn *badger.Txn) error {
		item, err := txn.Get(key)
		if err != nil {
			return err
		}
		value, err = item.ValueCopy(dst)
		return err
	})
	if errors.Is(err, badger.ErrKeyNotFound) {
		return dst, false, nil
	}
	return value, err == nil, err
}

// iterator opens badger's iterators on demand: each has one direction.
func (e *badgerEngine) iterator() (iterator, error) {
	return &badgerIterator{txn: e.db.NewTransaction(false)}, nil
}

func (e *badgerEngine) close() error { return e.db.Close() }

type badgerIterator struct {
	txn *badger.Txn
	it  *badger.Iterator
}

func (i *badgerIterator) open(reverse bool) {
	if i.it != nil {
		i.it.Close()
	}
	o := badger.DefaultIteratorOptions
	o.Reverse = reverse
	i.it = i.txn.NewIterator(o)
}

func (i *badgerIterator) First() bool {
	i.open(false)
	i.it.Rewind()
	return i.it.Valid()
}

func (i *badgerIterator) Last() bool {
	i.open(true)
	i.it.Rewind()
	return i.it.Valid()
}

func (i *badgerIterator) Next() bool {
	i.it.Next()
	return i.it.Valid()
}

func (i *badgerIterator) Prev() bool { return i.Next() }

func (i *badgerIterator) SeekGE(key []byte) bool {
	if i.it == nil {
		i.open(false)
	}
	i.it.Seek(key)
	return i.it.Valid()
}

func (i *badgerIterator) Key() []byte { return i.it.Item().Key() }

func (i *badgerIterator) ValueAndErr() (value []byte, err error) {
	err = i.it.Item().Value(func(v []byte) error {
		value = v
		return nil
	})
	return value, err
}

func (i *badgerIterator) Close() error {
	if i.it != nil {
		i.it.Close()
	}
	i.txn.Discard()
	return nil
}
