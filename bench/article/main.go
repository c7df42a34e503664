// Article compares merge policies and update methods of the article on the document store:
//
//	cd bench && go run ./article
//
// The indexes of flushed memory are merged always, never, or when of similar size. For each policy it
// counts with the article's pseudocode the jobs written and the indexes left after 4 and 100 flushes
// of 100,000 jobs, and then measures package lsm with the same policy.
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

	"docstore/bench/internal/machine"
	"docstore/bench/internal/results"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "article:", err)
		os.Exit(1)
	}
}

// settings is what the flags say.
type settings struct {
	memtableBytes      int64
	flushes, reads     int
	documents, perFile int
	duration           time.Duration
	rounds             int
	dir                string
	keeper             *results.Keeper
}

func parse(args []string) (s settings, err error) {
	flags := flag.NewFlagSet("article", flag.ContinueOnError)
	flags.Int64Var(&s.memtableBytes, "memtable", 2<<20, "bytes that are flushed at once, where the store does the work")
	flags.IntVar(&s.flushes, "flushes", 100, "flushes, where the store does the work")
	flags.IntVar(&s.reads, "reads", 200_000, "random reads afterwards")
	flags.IntVar(&s.documents, "documents", 100_000, "documents of about 1,000 bytes that are there when updates begin")
	flags.IntVar(&s.perFile, "per_file", 1000, "documents of a file in the order of ids")
	flags.DurationVar(&s.duration, "duration", 5*time.Second, "how long updates are made")
	flags.IntVar(&s.rounds, "rounds", 3, "rounds; medians are told")
	flags.StringVar(&s.dir, "dir", "", "directory on the disk to measure; the default is a temporary one")
	file := flags.String("results", "", "file of results to add to; what it has is not measured again")
	table := flags.String("table", "", "name of these results in the file")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if s.memtableBytes < 1 || s.flushes < 1 || s.reads < 1 || s.documents < 1 || s.perFile < 1 || s.rounds < 1 || s.duration <= 0 || flags.NArg() > 0 {
		return s, errors.New("want numbers of 1 or more, a -duration of more than 0, and no arguments")
	}
	s.keeper, err = results.NewKeeper("article", *table, fmt.Sprintf("memtable=%d flushes=%d reads=%d documents=%d per_file=%d duration=%v",
		s.memtableBytes, s.flushes, s.reads, s.documents, s.perFile, s.duration), *file)
	return s, err
}

func run(args []string) (err error) {
	s, err := parse(args)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.keeper.Close()) }()
	if s.dir, err = os.MkdirTemp(s.dir, "article-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	fmt.Printf("# %s, %s, commit %s\n", time.Now().UTC().Format("2006-01-02 15:04 UTC"), machine.Name(), machine.Commit())
	for _, warning := range machine.BuildWarnings() {
		fmt.Println("# WARNING:", warning)
	}
	if err := s.countRules(); err != nil {
		return err
	}
	if err := s.measureRules(); err != nil {
		return err
	}
	return s.measureUpdates()
}

// rounded measures in rounds and returns the medians.
func (s settings) rounded(contestant, phase string, measure func() (map[string]float64, error)) (map[string]float64, error) {
	all := map[string][]float64{}
	for round := range s.rounds {
		figures, err := s.keeper.Measure(contestant, phase, round+1, measure)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", contestant, err)
		}
		for name, figure := range figures {
			all[name] = append(all[name], figure)
		}
	}
	medians := map[string]float64{}
	for name, numbers := range all {
		medians[name] = results.SpreadOf(numbers).Median
	}
	return medians, nil
}
