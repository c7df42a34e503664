package main

import "fmt"

// Workloads that only write, with one thread.

// fillsync writes -num / syncShare entries, as LevelDB's db_bench does.
const syncShare = 1000

// overwriteStep is the step from an entry to the next one that is overwritten or removed. It is a prime
// larger than any -num, so that all entries are reached.
const overwriteStep = 2_147_483_647

// A setter writes an entry. last is set for the last one.
type setter func(key, value []byte, last bool) error

// setOne writes an entry; B-trees write several in a transaction.
func (b *bench) setOne(key, value []byte, _ bool) error { return b.engine.set(key, value) }

// setSynced writes an entry with fsync.
func (b *bench) setSynced(key, value []byte, _ bool) error {
	return b.engine.apply([]write{{key: key, value: value}}, true)
}

// setInBatches writes batches of the size of LevelDB's fillbatch.
func (b *bench) setInBatches() setter {
	gathered := new(batch)
	var writes []write
	return func(key, value []byte, last bool) error {
		if full := gathered.add(key, value); !full && !last {
			return nil
		}
		writes = writes[:0]
		if err := gathered.drain(func(key, value []byte) error {
			writes = append(writes, write{key: key, value: value})
			return nil
		}); err != nil {
			return err
		}
		return b.engine.apply(writes, false)
	}
}

// fill writes entries into an empty store.
func (b *bench) fill(count int, sequential bool, set setter) (int, error) {
	if err := b.fresh(sequential); err != nil {
		return 0, err
	}
	b.begin()
	b.loaded = uint64(count)
	return count, b.writeAll(func(n uint64) uint64 { return n }, set)
}

// overwrite writes another value of every entry, in a different order.
func (b *bench) overwrite() (int, error) {
	if b.inserted.Load() > 0 {
		return 0, fmt.Errorf("%d entries have been inserted: fill first", b.inserted.Load())
	}
	b.data.generation++
	b.removed = false
	return int(b.loaded), b.writeAll(func(n uint64) uint64 { return n * overwriteStep % b.loaded }, b.setOne)
}

// writeAll writes all entries, entry(n) as the nth one, and flushes.
func (b *bench) writeAll(entry func(n uint64) uint64, set setter) error {
	var key, value []byte
	err := b.record(func(lat recorder) error {
		for n := range b.loaded {
			key = b.data.key(key, entry(n))
			value = b.data.value(value, key)
			start := lat.begin()
			if err := set(key, value, n == b.loaded-1); err != nil {
				return err
			}
			lat.end(start)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.engine.flush()
}

// deleteRandom removes every second entry in random order.
func (b *bench) deleteRandom() (int, error) {
	if b.removed {
		return 0, fmt.Errorf("deleterandom a second time: fill or overwrite first")
	}
	var key []byte
	ops := 0
	err := b.record(func(lat recorder) error {
		for n := range b.loaded {
			i := n * overwriteStep % b.loaded
			if i%2 == 0 {
				continue
			}
			key = b.data.key(key, i)
			start := lat.begin()
			if err := b.engine.apply([]write{{key: key, remove: true}}, false); err != nil {
				return err
			}
			lat.end(start)
			ops++
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	b.removed = true
	return ops, b.engine.flush()
}
