package main

import (
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable/block"
)

type pebbleEngine struct{ db *pebble.DB }

func openPebble(dir string, s sizing) (engine, error) {
	cache := pebble.NewCache(s.cacheBytes)
	defer cache.Unref()
	o := &pebble.Options{
		Cache:        cache,
		MemTableSize: uint64(s.memtableBytes),
		Logger:       quiet{},
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].Compression = func() *block.CompressionProfile { return block.NoCompression }
	}
	db, err := pebble.Open(dir, o)
	return pebbleEngine{db}, err
}

func (e pebbleEngine) set(key, value []byte) error { return e.db.Set(key, value, pebble.NoSync) }

func (e pebbleEngine) apply(writes []write, sync bool) (err error) {
	b := e.db.NewBatch()
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := eachWrite(writes,
		func(key, value []byte) error { return b.Set(key, value, nil) },
		func(key []byte) error { return b.Delete(key, nil) }); err != nil {
		return err
	}
	return b.Commit(&pebble.WriteOptions{Sync: sync})
}

func (e pebbleEngine) flush() error {
	if err := e.db.Flush(); err != nil {
		return err
	}
	for e.db.Metrics().Compact.NumInProgress > 0 {
		time.Sleep(time.Millisecond)
	}
	return nil
}

func (e pebbleEngine) get(dst, key []byte) ([]byte, bool, error) {
	value, closer, err := e.db.Get(key)
	if err != nil {
		if errors.Is(err, pebble.ErrNotFound) {
			err = nil
		}
		return dst, false, err
	}
	dst = append(dst, value...)
	return dst, true, closer.Close()
}

func (e pebbleEngine) iterator() (iterator, error) {
	return e.db.NewIter(nil)
}

func (e pebbleEngine) close() error { return e.db.Close() }

// quiet drops what an engine logs.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	pebble.DefaultLogger.Fatalf(format, args...)
}
