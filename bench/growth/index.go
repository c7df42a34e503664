package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"docstore/bench/internal/files"
	"docstore/bench/internal/histogram"
	"docstore/bench/internal/process"
	"docstore/lsm"
)

// Columns of the index. Writes are those since the previous size, and a descriptor is one of the process.
const (
	writeColumn       = "write ns"
	cpuColumn         = "CPU ns" // of a write
	debtColumn        = "merge debt MB"
	settleColumn      = "settle s"
	hitColumn         = "hit ns"
	hit99Column       = "hit p99 ns"
	missColumn        = "miss ns"
	tablesColumn      = "tables"
	memoryColumn      = "anonymous MB"
	diskColumn        = "disk MB"
	descriptorsColumn = "descriptors"
	restartColumn     = "restart ms"
)

// parts divide the final size.
var parts = []int{300, 100, 30, 10, 5, 3, 2, 1}

func measureIndex(dir string, count, reads int, report func(sample) error) error {
	s, err := openIndex(dir)
	if err != nil {
		return err
	}
	defer func() { _ = s.db.Close() }() // read errors are reported by the reads
	size := 0
	for _, part := range parts {
		from := size
		if size = count / part; size == from {
			continue
		}
		values := make(map[string]float64)
		begun, cpu := time.Now(), process.OwnCPU()
		if err := s.write(from, size); err != nil {
			return err
		}
		written := float64(size - from)
		values[writeColumn], values[debtColumn] = nanoseconds(time.Since(begun))/written, float64(s.debt())/1e6
		paused := time.Now()
		if err := s.settle(); err != nil {
			return err
		}
		values[settleColumn], values[cpuColumn] = time.Since(paused).Seconds(), nanoseconds(process.OwnCPU()-cpu)/written
		values[tablesColumn] = float64(len(s.db.Stats().Tables))
		hits, err := timeReads(s, reads, size, true)
		if err != nil {
			return err
		}
		misses, err := timeReads(s, reads, size, false)
		if err != nil {
			return err
		}
		values[hitColumn], values[hit99Column] = nanoseconds(hits.Mean()), nanoseconds(hits.Quantile(0.99))
		values[missColumn] = nanoseconds(misses.Mean())
		anonymous, err := process.Memory(os.Getpid(), "RssAnon")
		if err != nil {
			return err
		}
		descriptors, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return err
		}
		disk, err := files.Bytes(dir, ".log")
		if err != nil {
			return err
		}
		values[memoryColumn], values[diskColumn], values[descriptorsColumn] = float64(anonymous)/1e6, float64(disk)/1e6, float64(len(descriptors))
		if err := s.db.Close(); err != nil {
			return err
		}
		begun = time.Now()
		if s, err = openIndex(dir); err != nil {
			return err
		}
		if err := s.settle(); err != nil {
			return err
		}
		values[restartColumn] = nanoseconds(time.Since(begun)) / 1e6
		if err := report(sample{ofEntries, size, values}); err != nil {
			return err
		}
	}
	return nil
}

func nanoseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) }

// timeReads reads random entries of an index of a size, or as many that it does not have.
func timeReads(s *index, reads, size int, hits bool) (*histogram.Histogram, error) {
	h := &histogram.Histogram{}
	for range reads {
		n := rand.IntN(size)
		if !hits {
			n += size
		}
		begun := time.Now()
		found, err := s.read(n)
		h.Add(time.Since(begun))
		if err != nil {
			return nil, err
		}
		if found != hits {
			return nil, fmt.Errorf("entry %d of %d: found is %t", n, size, found)
		}
	}
	return h, nil
}

// index is an lsm.DB with keys of 8 bytes in random order and values of 12 bytes.
type index struct {
	db         *lsm.DB
	key, value []byte
}

func openIndex(dir string) (*index, error) {
	db, err := lsm.Open(dir, nil)
	return &index{db: db, key: make([]byte, 8)}, err
}

// scramble is a bijection (the finalizer of MurmurHash3): different numbers give different keys.
func scramble(n uint64) uint64 {
	n = (n ^ n>>33) * 0xff51afd7ed558ccd
	n = (n ^ n>>33) * 0xc4ceb9fe1a85ec53
	return n ^ n>>33
}

func (i *index) keyOf(n int) []byte {
	binary.BigEndian.PutUint64(i.key, scramble(uint64(n)+1))
	return i.key
}

// write adds the entries from, from+1, ... to-1.
func (i *index) write(from, to int) error {
	var value [12]byte
	for n := from; n < to; n++ {
		binary.LittleEndian.PutUint64(value[:], uint64(n))
		if err := i.db.Set(i.keyOf(n), value[:]); err != nil {
			return err
		}
	}
	return nil
}

// read reads an entry; there is none with a number that was not written.
func (i *index) read(n int) (found bool, err error) {
	i.value, err = i.db.Get(i.value[:0], i.keyOf(n))
	if errors.Is(err, lsm.ErrNotFound) {
		return false, nil
	}
	if err == nil && binary.LittleEndian.Uint64(i.value) != uint64(n) {
		err = fmt.Errorf("entry %d has a wrong value", n)
	}
	return true, err
}

// settle waits until no merge is in progress.
func (i *index) settle() error { return i.db.WaitIdle(context.Background()) }

// debt returns the bytes that merges in progress have still to write.
func (i *index) debt() (total uint64) {
	for _, m := range i.db.Stats().Merges {
		total += m.InputBytes - min(m.InputBytes, m.WrittenBytes)
	}
	return total
}
