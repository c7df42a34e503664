package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
)

// Workloads that read. Reads check the length and the first byte of each value; check compares all
// bytes after the measurement.

// missing is the first number without an entry.
const missing = 1 << 40

func (b *bench) anyEntry(random *rand.Rand) uint64 { return random.Uint64N(b.loaded) }

// hotEntry returns one of a hundredth of the entries.
func (b *bench) hotEntry(random *rand.Rand) uint64 { return random.Uint64N((b.loaded + 99) / 100) }

func (b *bench) missingEntry(random *rand.Rand) uint64 { return missing + random.Uint64N(b.loaded) }

// read gets random entries.
func (b *bench) read(threads int, draw func(*rand.Rand) uint64) (int, error) {
	return b.reads * threads, b.parallel(threads, func(random *rand.Rand, lat recorder) error {
		g := getter{bench: b, lat: lat}
		for range b.reads {
			if err := g.get(draw(random)); err != nil {
				return err
			}
		}
		return nil
	})
}

// A getter gets entries into reused buffers.
type getter struct {
	bench      *bench
	lat        recorder
	key, value []byte
}

func (g *getter) get(i uint64) error {
	b := g.bench
	g.key = b.data.key(g.key, i)
	start := g.lat.begin()
	value, found, err := b.engine.get(g.value[:0], g.key)
	g.lat.end(start)
	if err != nil {
		return err
	}
	if found != b.there(i) {
		return fmt.Errorf("get of key %x: found %v", g.key, found)
	}
	if g.value = value; found {
		if len(value) != b.data.valueBytes || value[0] != b.data.firstByte(g.key) {
			return fmt.Errorf("get of key %x: wrong value", g.key)
		}
	}
	return nil
}

// scan reads all entries in one direction.
func (b *bench) scan(start, step func(iterator) bool) (int, error) {
	it, err := b.engine.iterator()
	if err != nil {
		return 0, err
	}
	count, bytes := 0, 0
	for ok := start(it); ok; ok = step(it) {
		value, err := it.ValueAndErr()
		if err != nil {
			return 0, err
		}
		bytes += len(it.Key()) + len(value)
		count++
	}
	if err := it.Close(); err != nil {
		return 0, err
	}
	if count != b.entries() || bytes != count*(b.data.keyBytes+b.data.valueBytes) {
		return 0, fmt.Errorf("%d entries of %d bytes, want %d", count, bytes, b.entries())
	}
	return count, nil
}

// seekEntries is the number of entries read after a seek.
const seekEntries = 10

// seekRandom seeks random keys with one iterator and reads on from there.
func (b *bench) seekRandom(threads int) (int, error) {
	count := b.reads / seekEntries
	return count * threads, b.parallel(threads, func(random *rand.Rand, lat recorder) error {
		it, err := b.engine.iterator()
		if err != nil {
			return err
		}
		var key []byte
		for range count {
			key = b.data.key(key, b.missingEntry(random))
			start := lat.begin()
			ok := it.SeekGE(key)
			for n := 0; ok && n < seekEntries; n++ {
				if _, err := it.ValueAndErr(); err != nil {
					return err
				}
				ok = it.Next()
			}
			lat.end(start)
		}
		return it.Close()
	})
}

// seekFresh is seekRandom with a new iterator for each seek, which sees concurrent writes.
func (b *bench) seekFresh(threads int) (int, error) {
	count := b.reads / seekEntries
	return count * threads, b.parallel(threads, func(random *rand.Rand, lat recorder) error {
		var key []byte
		for range count {
			key = b.data.key(key, b.missingEntry(random))
			start := lat.begin()
			if err := b.scanFrom(key, seekEntries); err != nil {
				return err
			}
			lat.end(start)
		}
		return nil
	})
}

// scanFrom reads up to n entries starting at a key.
func (b *bench) scanFrom(key []byte, n int) error {
	return b.visit(func(it iterator) bool { return it.SeekGE(key) }, func(key, value []byte) (bool, error) {
		if len(key) != b.data.keyBytes || len(value) != b.data.valueBytes {
			return false, fmt.Errorf("entry of %d + %d bytes", len(key), len(value))
		}
		n--
		return n > 0, nil
	})
}

// visit calls fn for the entries from a start on until it returns false.
func (b *bench) visit(start func(iterator) bool, fn func(key, value []byte) (more bool, err error)) (err error) {
	it, err := b.engine.iterator()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := start(it); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if more, err := fn(it.Key(), value); err != nil || !more {
			return err
		}
	}
	return nil
}

// check compares all entries with the expected ones, and gets some.
func (b *bench) check() error {
	var scratch, key []byte
	count := 0
	if err := b.visit(iterator.First, func(key, value []byte) (bool, error) {
		if !b.data.right(key, value, scratch) {
			return false, fmt.Errorf("check: key %x has another value", key)
		}
		count++
		return true, nil
	}); err != nil {
		return err
	}
	if count != b.entries() {
		return fmt.Errorf("check: %d entries, want %d", count, b.entries())
	}
	for i := uint64(0); i < b.loaded; i += 1 + b.loaded/10_000 {
		key = b.data.key(key, i)
		value, found, err := b.engine.get(nil, key)
		if err != nil || found != b.there(i) || found && !b.data.right(key, value, scratch) {
			return fmt.Errorf("check: key %x: found is %v, error %w", key, found, err)
		}
	}
	return nil
}
