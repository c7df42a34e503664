package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"docstore/lsm"
)

// A rule says when indexes are merged.
type rule struct {
	name string
	lsm  lsm.MergeRule
	// merges tells whether an index of so many jobs is merged with the next older one.
	merges func(size, older int) bool
}

var rules = []rule{
	{"those of like size", lsm.SizeTiered, func(size, older int) bool { return size >= older }},
	{"always merge", lsm.MergeAlways, func(int, int) bool { return true }},
	{"always write", lsm.MergeNever, func(int, int) bool { return false }},
}

// articleJobs is how many jobs are flushed at once in the article.
const articleJobs = 100_000

// steps goes through the article's pseudocode:
//
//	newIndex.add(memoryIndex)
//	while newIndex.size >= diskIndexes.first.size
//		newIndex.merge(diskIndexes.removeFirst())
//	newIndex.write()
//	diskIndexes.addFirst(newIndex)
func (r rule) steps(flushes, jobs int) (written, indexes int) {
	var disk []int // the newest last
	for range flushes {
		index := jobs
		for len(disk) > 0 && r.merges(index, disk[len(disk)-1]) {
			index += disk[len(disk)-1]
			disk = disk[:len(disk)-1]
		}
		written += index
		disk = append(disk, index)
	}
	return written, len(disk)
}

// countRules counts what each rule writes.
func (s settings) countRules() error {
	fmt.Printf("\n%-20s %8s %14s %8s\n", "rule, counted", "flushes", "job writes", "indexes")
	for _, flushes := range []int{4, 100} {
		for _, r := range rules {
			written, indexes := r.steps(flushes, articleJobs)
			figures := map[string]float64{"job writes": float64(written), "indexes": float64(indexes)}
			if _, err := s.keeper.Measure(r.name, fmt.Sprintf("counted, %d flushes", flushes), 1, func() (map[string]float64, error) { return figures, nil }); err != nil {
				return err
			}
			fmt.Printf("%-20s %8d %14d %8d\n", r.name, flushes, written, indexes)
		}
	}
	return nil
}

// measureRules has the store do the work.
func (s settings) measureRules() error {
	fmt.Printf("\n%-20s %8s %14s %14s %14s %8s %14s\n", "rule, measured", "flushes", "jobs", "jobs/s", "times written", "tables", "gets/s")
	for _, r := range rules {
		f, err := s.rounded(r.name, "measured", func() (map[string]float64, error) { return s.measureRule(r) })
		if err != nil {
			return err
		}
		fmt.Printf("%-20s %8.0f %14.0f %14.0f %14.2f %8.0f %14.0f\n", r.name, f["flushes"], f["jobs"], f["jobs/s"], f["times written"], f["tables"], f["gets/s"])
	}
	return nil
}

func (s settings) measureRule(r rule) (figures map[string]float64, err error) {
	dir := filepath.Join(s.dir, "index")
	db, err := lsm.Open(dir, &lsm.Options{MergeRule: r.lsm, MemtableBytes: s.memtableBytes})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close(), os.RemoveAll(dir)) }()
	start := time.Now()
	jobs, err := s.putJobs(db)
	if err != nil {
		return nil, err
	}
	elapsed := time.Since(start)
	stats := db.Stats()
	w := stats.Writes
	figures = map[string]float64{
		"jobs": float64(jobs), "jobs/s": float64(jobs) / elapsed.Seconds(),
		"times written": w.Amplification(), "tables": float64(len(stats.Tables)), "flushes": float64(w.Flushes),
	}
	if figures["gets/s"], err = s.getJobs(db, jobs); err != nil {
		return nil, err
	}
	return figures, nil
}

// putJobs writes until there have been so many flushes, and all merges are done.
func (s settings) putJobs(db *lsm.DB) (jobs int, err error) {
	const lookEvery = 1000
	var key, address [8]byte
	for ; jobs%lookEvery != 0 || db.Stats().Writes.Flushes < uint64(s.flushes-1); jobs++ {
		binary.BigEndian.PutUint64(key[:], jobID(jobs))
		binary.BigEndian.PutUint64(address[:], uint64(jobs))
		if err := db.Set(key[:], address[:]); err != nil {
			return 0, err
		}
	}
	if err := db.Flush(); err != nil {
		return 0, err
	}
	return jobs, db.WaitIdle(context.Background())
}

// getJobs reads random ones of so many jobs and returns how many a second.
func (s settings) getJobs(db *lsm.DB, jobs int) (float64, error) {
	random := rand.New(rand.NewPCG(1, 1))
	start := time.Now()
	var key [8]byte
	var value []byte
	for range s.reads {
		n := random.IntN(jobs)
		binary.BigEndian.PutUint64(key[:], jobID(n))
		var err error
		if value, err = db.Get(value[:0], key[:]); err != nil {
			return 0, err
		}
		if binary.BigEndian.Uint64(value) != uint64(n) {
			return 0, fmt.Errorf("job %x has another address", key)
		}
	}
	return float64(s.reads) / time.Since(start).Seconds(), nil
}

// jobID is the id of a job; no two have the same, and they are in no order.
func jobID(n int) uint64 { return uint64(n) * 0x9E3779B97F4A7C15 }
