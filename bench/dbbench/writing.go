package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"docstore/bench/internal/zipf"
)

// Workloads that read while a writer runs. It overwrites random entries with what they
// hold, at a rate that is the same for all engines: otherwise the faster one would
// have more merges to do beside its reads.

// whileWriting runs reads beside the writer.
func (b *bench) whileWriting(reads func() (int, error)) (ops int, err error) {
	done, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- b.write(done) }()
	ops, err = reads()
	close(done)
	if writeErr := <-ended; err == nil {
		err = writeErr
	}
	b.wrote = true
	return ops, err
}

// write overwrites entries until done is closed.
func (b *bench) write(done <-chan struct{}) error {
	const together = 100
	random := rand.New(rand.NewPCG(b.data.seed, 1<<32))
	start := time.Now()
	for written := 0; ; written += together {
		due := start.Add(time.Duration(float64(written) / float64(b.writeRate) * float64(time.Second)))
		select {
		case <-done:
			return nil
		case <-time.After(time.Until(due)):
		}
		for range together {
			if err := b.set(random.Uint64N(uint64(b.num))); err != nil {
				return err
			}
		}
	}
}

// set writes an entry: engines take one writer at a time.
func (b *bench) set(i uint64) error {
	b.writing.Lock()
	defer b.writing.Unlock()
	b.writing.key = b.data.key(b.writing.key, i)
	b.writing.value = b.data.value(b.writing.value, b.writing.key)
	return b.engine.set(b.writing.key, b.writing.value)
}

// seekFresh is seekRandom with an iterator of its own for each seek, as whoever wants
// to see what is written meanwhile needs one.
func (b *bench) seekFresh(threads int) (int, error) {
	const entries = 10
	count := b.reads / entries
	return count * threads, parallel(threads, func(thread int) error {
		random := rand.New(rand.NewPCG(b.data.seed, uint64(thread)))
		var key []byte
		for range count {
			key = b.data.key(key, 1<<40+random.Uint64N(uint64(b.num)))
			if err := b.scanFrom(key, entries); err != nil {
				return err
			}
		}
		return nil
	})
}

// scanFrom reads up to n entries from a key on.
func (b *bench) scanFrom(key []byte, n int) error {
	it, err := b.engine.iterator()
	if err != nil {
		return err
	}
	for ok := it.seek(key); ok && n > 0; ok = it.next() {
		value, err := it.value()
		if err != nil {
			return err
		}
		if len(it.key()) != b.data.keyBytes || len(value) != b.data.valueBytes {
			return fmt.Errorf("entry of %d + %d bytes", len(it.key()), len(value))
		}
		n--
	}
	return it.close()
}

// ycsbE is YCSB's workload E: of a hundred operations 95 read up to a hundred entries
// from one on, some far more often than others, and five add one.
func (b *bench) ycsbE(threads int) (int, error) {
	const entries, insertPercent = 100, 5
	z := zipf.New(b.num)
	count := b.reads / entries
	return count * threads, parallel(threads, func(thread int) error {
		random := rand.New(rand.NewPCG(b.data.seed, uint64(thread)))
		var key []byte
		for range count {
			var err error
			if random.IntN(100) < insertPercent {
				err = b.set(uint64(b.num) + b.inserted.Add(1) - 1)
			} else {
				key = b.data.key(key, z.Draw(random))
				err = b.scanFrom(key, 1+random.IntN(entries))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
