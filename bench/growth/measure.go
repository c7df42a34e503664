package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"docstore/bench/internal/files"
	"docstore/bench/internal/histogram"
	"docstore/bench/internal/process"
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

var indexColumns = []column{
	{writeColumn, 0}, {cpuColumn, 0}, {debtColumn, 0}, {settleColumn, 1}, {hitColumn, 0}, {hit99Column, 0}, {missColumn, 0}, {tablesColumn, 0},
	{memoryColumn, 0}, {diskColumn, 0}, {descriptorsColumn, 0}, {restartColumn, 1},
}

// parts divide the final size.
var parts = []int{300, 100, 30, 10, 5, 3, 2, 1}

func measureIndex(dir string, count, reads int, report func(sample) error) error {
	s, err := openIndex(dir)
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }() // read errors are reported by the reads
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
		values[tablesColumn] = float64(s.tables())
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
		if err := s.close(); err != nil {
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
