package main

import (
	"math/rand/v2"
	"time"
)

// Workloads that read while something else goes on. A writer overwrites random entries
// with what they hold, at a rate that is the same for all engines: otherwise the faster
// one would have more merges to do beside its reads. A scanner reads everything, again
// and again, as fast as it can.

// whileWriting runs reads beside the writer.
func (b *bench) whileWriting(reads func() (int, error)) (int, error) {
	b.wrote = true
	return beside(b.write, reads)
}

// whileScanning runs reads beside the scanner.
func (b *bench) whileScanning(reads func() (int, error)) (int, error) {
	return beside(func(done <-chan struct{}) error {
		for {
			if stopped, err := b.scanUntil(done); stopped || err != nil {
				return err
			}
		}
	}, reads)
}

// beside runs reads while the neighbour is at work.
func beside(neighbour func(done <-chan struct{}) error, reads func() (int, error)) (ops int, err error) {
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
			if err := b.set(b.anyEntry(random), b.engine.set); err != nil {
				return err
			}
		}
	}
}

// set writes an entry as one of several writers: engines take one at a time.
func (b *bench) set(i uint64, set func(key, value []byte) error) error {
	b.writing.Lock()
	defer b.writing.Unlock()
	b.writing.key = b.data.key(b.writing.key, i)
	b.writing.value = b.data.value(b.writing.value, b.writing.key)
	return set(b.writing.key, b.writing.value)
}

// scanUntil reads all entries unless done is closed before.
func (b *bench) scanUntil(done <-chan struct{}) (stopped bool, err error) {
	const lookEvery = 1000
	it, err := b.engine.iterator()
	if err != nil {
		return false, err
	}
	n := 0
	for ok := it.first(); ok && !stopped; ok = it.next() {
		if _, err := it.value(); err != nil {
			return false, err
		}
		if n++; n%lookEvery == 0 {
			select {
			case <-done:
				stopped = true
			default:
			}
		}
	}
	return stopped, it.close()
}
