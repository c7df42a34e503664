// Article compares merge policies and update methods of the article on the document store:
//
//	cd bench && go run ./article
//
// Package lsm merges the indexes of flushed memory always, never, or when of similar size.
//
// Two stores receive updates of documents: files ordered by id, which are read, decompressed, changed,
// compressed and rewritten for each update, and the queue, which appends. The time includes fsync.
// The article measured 37.5 updates per second for the files, mostly disk seeks.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"docstore/bench/internal/command"
	"docstore/bench/internal/results"
)

func main() { command.Main(run) }

// settings are the values of the flags.
type settings struct {
	memtableBytes      int64
	flushes, reads     int
	documents, perFile int
	duration           time.Duration
	rounds             int
	dir                string
	keeper             results.Keeper
}

type figures = map[string]float64

func parse(args []string) (s settings, err error) {
	flags := flag.NewFlagSet("article", flag.ContinueOnError)
	flags.Int64Var(&s.memtableBytes, "memtable", 2<<20, "bytes of a memtable of package lsm")
	flags.IntVar(&s.flushes, "flushes", 100, "flushes of package lsm")
	flags.IntVar(&s.reads, "reads", 200_000, "random reads afterwards")
	flags.IntVar(&s.documents, "documents", 100_000, "documents of about 1,000 bytes before the updates")
	flags.IntVar(&s.perFile, "per_file", 1000, "documents of a file in the order of ids")
	flags.DurationVar(&s.duration, "duration", 5*time.Second, "duration of the updates")
	flags.IntVar(&s.rounds, "rounds", 3, "rounds; medians are printed")
	flags.StringVar(&s.dir, "dir", "", "directory on the disk to measure; the default is a temporary one")
	s.keeper.Flags(flags)
	if err := command.Parse(flags, args); err != nil {
		return s, err
	}
	if s.memtableBytes < 1 || s.flushes < 1 || s.reads < 1 || s.documents < 1 || s.perFile < 1 || s.rounds < 1 || s.duration <= 0 {
		return s, errors.New("want numbers of 1 or more, and a -duration of more than 0")
	}
	return s, nil
}

func run(args []string) (err error) {
	s, err := parse(args)
	if err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp(s.dir, "article-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	depends := fmt.Sprintf("memtable=%d flushes=%d reads=%d documents=%d per_file=%d duration=%v",
		s.memtableBytes, s.flushes, s.reads, s.documents, s.perFile, s.duration)
	return s.keeper.Run(depends, os.Stdout, s.measure, "jobs/s", "flushes", "jobs", "written times", "tables", "gets/s", "updates/s", "written bytes")
}

// measure measures the rules, and the stores under updates.
func (s *settings) measure() error {
	var names []string
	for _, r := range rules {
		names = append(names, r.name)
	}
	if err := s.keeper.Rounds(s.rounds, "measured", names, func(i int) (figures, error) { return s.measureRule(rules[i]) }); err != nil {
		return err
	}
	stores := []string{"files in the order of ids, rewritten", "the queue, appended to"}
	update := []func() (figures, error){s.rewriteFiles, s.appendToQueue}
	return s.keeper.Rounds(s.rounds, "updates", stores, func(i int) (figures, error) { return update[i]() })
}
