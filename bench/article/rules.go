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
}

var rules = []rule{
	{"those of like size", lsm.SizeTiered},
	{"always merge", lsm.MergeAlways},
	{"always write", lsm.MergeNever},
}

// measureRule measures package lsm with a rule.
func (s settings) measureRule(r rule) (f figures, err error) {
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
	f = figures{
		"jobs": float64(jobs), "jobs/s": float64(jobs) / elapsed.Seconds(),
		"written times": w.Amplification(), "tables": float64(len(stats.Tables)), "flushes": float64(w.Flushes),
	}
	if f["gets/s"], err = s.getJobs(db, jobs); err != nil {
		return nil, err
	}
	return f, nil
}

// putJobs writes jobs for s.flushes flushes, and waits for all merges.
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

// getJobs reads random jobs and returns the rate per second.
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
			return 0, fmt.Errorf("job %x has a wrong address", key)
		}
	}
	return float64(s.reads) / time.Since(start).Seconds(), nil
}

// jobID returns the id of a job. Ids are unique and in random order.
func jobID(n int) uint64 { return uint64(n) * 0x9E3779B97F4A7C15 }
