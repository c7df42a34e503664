package main

import (
	"context"
	"errors"
	"math"

	"docstore/lsm"
)

// docstoreEngine has the default options, except the sizes of memtables and filters.
type docstoreEngine struct{ db *lsm.DB }

func openDocstore(dir string, s sizing) (engine, error) {
	o := lsm.Options{MemtableBytes: s.memtableBytes}
	if s.bloomBits > 0 {
		o.FalsePositiveRate = math.Exp(-float64(s.bloomBits) * math.Ln2 * math.Ln2)
	}
	db, err := lsm.Open(dir, &o)
	return docstoreEngine{db}, err
}

func (e docstoreEngine) set(key, value []byte) error { return e.db.Set(key, value) }

func (e docstoreEngine) apply(writes []write, sync bool) error {
	var b lsm.Batch
	if err := eachWrite(writes, b.Set, b.Delete); err != nil {
		return err
	}
	if err := e.db.Apply(&b); err != nil || !sync {
		return err
	}
	return e.db.Sync()
}

func (e docstoreEngine) flush() error {
	if err := e.db.Flush(); err != nil {
		return err
	}
	return e.db.WaitIdle(context.Background())
}

// amplification returns the write amplification of tables, and the one that the
// size-tiered rule gives for as many flushes of equal size. As in the article, the flush
// that begins a merge is part of it. The rule then is a binary counter: flush n writes
// the largest power of two that divides n.
func (e docstoreEngine) amplification() (tables, rule float64) {
	w := e.db.Stats().Writes
	for n := uint64(1); n <= w.Flushes; n++ {
		rule += float64(n & -n)
	}
	return w.Amplification(), rule / float64(max(1, w.Flushes))
}

func (e docstoreEngine) get(dst, key []byte) ([]byte, bool, error) {
	value, err := e.db.Get(dst, key)
	if errors.Is(err, lsm.ErrNotFound) {
		return value, false, nil
	}
	return value, err == nil, err
}

func (e docstoreEngine) iterator() (iterator, error) { return docstoreIterator{e.db.NewIter(nil)}, nil }
func (e docstoreEngine) close() error                { return e.db.Close() }

type docstoreIterator struct{ *lsm.Iterator }

func (i docstoreIterator) ValueAndErr() ([]byte, error) { return i.Value(), nil }
func (i docstoreIterator) Close() error                 { return errors.Join(i.Err(), i.Iterator.Close()) }
