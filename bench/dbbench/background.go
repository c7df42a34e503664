package main

import (
	"math/rand/v2"
	"time"
)

// Workloads that read while a background task runs. The writer overwrites random entries with their
// values at a fixed rate, so that a faster engine does not get more merges. The scanner reads all
// entries repeatedly at full speed.

// whileWriting runs reads while the writer runs.
func (b *bench) whileWriting(reads func() (int, error)) (int, error) {
	b.wrote = true
	return readDuring(b.write, reads)
}

// whileScanning runs reads while the scanner runs.
func (b *bench) whileScanning(reads func() (int, error)) (int, error) {
	return readDuring(func(done <-chan struct{}) error {
		for {
			if stopped, err := b.scanUntil(done); stopped || err != nil {
				return err
			}
		}
	}, reads)
}

// readDuring runs reads during a background task.
func readDuring(neighbour func(done <-chan struct{}) error, reads func() (int, error)) (ops int, err error) {
	done, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- neighbour(done) }()
	ops, err = reads()
	close(done)
	if neighbourErr := <-ended; err == nil {
		err = neighbourErr
	}
	return ops, err
}

// write overwrites entries until done is closed.
func (b *bench) write(done <-chan struct{}) error {
	const (
		together  = 100
		writeRate = 50_000 // entries per second
	)
	random := rand.New(rand.NewPCG(b.data.seed, 1<<32))
	start := time.Now()
	for written := 0; ; written += together {
		due := start.Add(time.Duration(float64(written) / writeRate * float64(time.Second)))
		select {
		case <-done:
			return nil
		case <-time.After(time.Until(due)):
		}
		for range together {
			if err := b.set(b.anyEntry(random), b.engine.set); err != nil {
				return err
			}
		}
	}
}

// set writes an entry under a lock: engines accept one writer at a time.
func (b *bench) set(i uint64, set func(key, value []byte) error) error {
	b.writing.Lock()
	defer b.writing.Unlock()
	b.writing.key = b.data.key(b.writing.key, i)
	b.writing.value = b.data.value(b.writing.value, b.writing.key)
	return set(b.writing.key, b.writing.value)
}

// scanUntil reads all entries or until done is closed.
func (b *bench) scanUntil(done <-chan struct{}) (stopped bool, err error) {
	const lookEvery = 1000
	n := 0
	err = b.visit(iterator.First, func(_, _ []byte) (bool, error) {
		if n++; n%lookEvery == 0 {
			select {
			case <-done:
				stopped = true
			default:
			}
		}
		return !stopped, nil
	})
	return stopped, err
}
