package main

import (
	"math/rand/v2"

	"docstore/bench/internal/zipf"
)

// A mix is a core workload of YCSB: the percentage of each kind of operation; the rest read one entry.
// The popularity of entries is zipfian (0.99), independent of the order of keys. A write is visible
// to the next read.
type mix struct {
	update int  // write a value of an entry
	insert int  // add an entry
	modify int  // read an entry and write a value
	scan   int  // read up to ycsbScan entries; then a thread has fewer operations
	newest bool // the newest entries are the most popular
}

// ycsbScan is the maximum number of entries that a scan reads.
const ycsbScan = 100

var ycsbMixes = map[string]mix{
	"ycsba": {update: 50},
	"ycsbb": {update: 5},
	"ycsbc": {},
	"ycsbd": {insert: 5, newest: true},
	"ycsbe": {insert: 5, scan: 95},
	"ycsbf": {modify: 50},
}

// ycsb runs a mix.
func (b *bench) ycsb(threads int, m mix) (int, error) {
	popular := zipf.New(int(b.loaded))
	count := b.reads
	if m.scan > 0 {
		count = max(1, count/ycsbScan)
	}
	if m.update+m.insert+m.modify > 0 {
		b.wrote = true
	}
	b.begin() // after the distribution was computed
	return count * threads, b.parallel(threads, func(random *rand.Rand, lat recorder) error {
		y := ycsbThread{getter: getter{bench: b, lat: lat}, mix: m, popular: popular, random: random}
		for range count {
			if err := y.operation(); err != nil {
				return err
			}
		}
		return nil
	})
}

// ycsbThread is one thread of a mix.
type ycsbThread struct {
	getter
	mix     mix
	popular *zipf.Zipf
	random  *rand.Rand
}

func (y *ycsbThread) operation() error {
	b, m := y.bench, y.mix
	switch dice := y.random.IntN(100); {
	case dice < m.update:
		return y.put(y.draw())
	case dice < m.update+m.insert:
		return y.insert()
	case dice < m.update+m.insert+m.modify:
		i := y.draw()
		if err := y.get(i); err != nil {
			return err
		}
		return y.put(i)
	case dice < m.update+m.insert+m.modify+m.scan:
		y.key = b.data.key(y.key, y.draw())
		start := y.lat.begin()
		err := b.scanFrom(y.key, 1+y.random.IntN(ycsbScan))
		y.lat.end(start)
		return err
	}
	return y.get(y.draw())
}

// draw chooses an entry. Keys are in random order, so popular entries are spread.
func (y *ycsbThread) draw() uint64 {
	i := y.popular.Draw(y.random)
	if !y.mix.newest {
		return i
	}
	return y.bench.loaded + y.bench.inserted.Load() - 1 - i
}

func (y *ycsbThread) put(i uint64) error {
	b := y.bench
	start := y.lat.begin()
	err := b.set(i, b.applyOne)
	y.lat.end(start)
	return err
}

// applyOne writes an entry that is visible to the next read.
func (b *bench) applyOne(key, value []byte) error {
	return b.engine.apply([]write{{key: key, value: value}}, false)
}

// insert adds the next entry.
func (y *ycsbThread) insert() error {
	b := y.bench
	start := y.lat.begin()
	b.writing.Lock()
	defer b.writing.Unlock()
	b.writing.key = b.data.key(b.writing.key, b.loaded+b.inserted.Load())
	b.writing.value = b.data.value(b.writing.value, b.writing.key)
	err := b.applyOne(b.writing.key, b.writing.value)
	b.inserted.Add(1)
	y.lat.end(start)
	return err
}
