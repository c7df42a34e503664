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

// columns are the titles of the fields of a sample.
var columns = []string{
	"write ns", "CPU ns", "merge debt MB", "settle s", "hit ns", "p99", "miss ns", "tables",
	"anonymous MB", "disk bytes each", "descriptors", "restart ms",
}

// sample describes an index of one size. Writes are those since the previous size.
type sample struct {
	size             int
	write, cpu       time.Duration // of one
	debt             uint64
	settle           time.Duration
	hit, hit99, miss time.Duration
	tables           int
	anonymous, disk  int64
	descriptors      int
	restart          time.Duration
}

func (s sample) String() string {
	return fmt.Sprintf("| %d | %d | %d | %d | %.1f | %d | %d | %d | %d | %d | %.0f | %d | %.1f |", s.size,
		s.write.Nanoseconds(), s.cpu.Nanoseconds(), s.debt/1e6, s.settle.Seconds(), s.hit.Nanoseconds(), s.hit99.Nanoseconds(),
		s.miss.Nanoseconds(), s.tables, s.anonymous/1e6, float64(s.disk)/float64(s.size), s.descriptors, float64(s.restart.Microseconds())/1000)
}

// growth are the samples of an index.
type growth struct{ samples []sample }

// parts divide the final size.
var parts = []int{300, 100, 30, 10, 5, 3, 2, 1}

func (g *growth) measure(dir string, count, reads int, report func(sample)) error {
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
		one := sample{size: size}
		begun, cpu := time.Now(), process.OwnCPU()
		if err := s.write(from, size); err != nil {
			return err
		}
		written := time.Duration(size - from)
		one.write, one.debt = time.Since(begun)/written, s.debt()
		paused := time.Now()
		if err := s.settle(); err != nil {
			return err
		}
		one.settle, one.cpu, one.tables = time.Since(paused), (process.OwnCPU()-cpu)/written, s.tables()
		hits, err := timeReads(s, reads, size, true)
		if err != nil {
			return err
		}
		misses, err := timeReads(s, reads, size, false)
		if err != nil {
			return err
		}
		one.hit, one.hit99, one.miss = hits.Mean(), hits.Quantile(0.99), misses.Mean()
		if one.anonymous, err = process.Memory(os.Getpid(), "RssAnon"); err != nil {
			return err
		}
		descriptors, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return err
		}
		one.descriptors = len(descriptors)
		if one.disk, err = files.Bytes(dir, ".log"); err != nil {
			return err
		}
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
		one.restart = time.Since(begun)
		g.samples = append(g.samples, one)
		report(one)
	}
	return nil
}

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
