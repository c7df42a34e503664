// Report runs all benchmarks and writes docs/benchmarks.md and the table in README.md:
//
//	make bench-report                      the quick size, 20 minutes
//	make bench-report SIZE=full            the full size, hours
//	cd bench && go run ./report -render    only the pages, from report/published
//
// Each measurement is a line in bench/results/SIZE.ndjson. An interrupted report resumes. Rivals
// that are not installed are skipped with a message.
//
// To measure single steps and merge them with the results of other files:
//
//	go run ./report -results results/new.ndjson,results/quick.ndjson -steps documents,debian
//	go run ./report -size full -results results/new.ndjson,results/quick.ndjson -steps article -args "-engine docstore,pebble -rounds 1"
//
// Results are added to the first file, and steps that it already has are skipped. The medians of
// each table's latest settings and of each cell's latest commit are written to a file of
// report/published for each model of processor; the pages are generated from these files. The
// model with the most results has the main page, another one docs/benchmarks-MODEL.md. Reasons of
// missed goals are written by hand in reasons.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"docstore/bench/internal/command"
	"docstore/bench/internal/results"
)

func main() { command.MainContext(run) }

// settings are the values of the flags.
type settings struct {
	size    string
	files   []string // of results; the first one grows
	out     string
	readme  string
	medians string // the directory of condensed results
	corpus  string
	render  bool
	chosen  []step
	more    []string // arguments of the chosen steps
	dryRun  bool
	tempDir string
}

func parse(args []string) (s settings, err error) {
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	flags.StringVar(&s.size, "size", "quick", "quick, full, or tiny, which only tests that everything runs")
	files := flags.String("results", "", "comma-separated files of results, new ones are added to the first; default results/SIZE.ndjson")
	flags.StringVar(&s.out, "out", "../docs/benchmarks.md", "page to write")
	flags.StringVar(&s.readme, "readme", "../README.md", "page whose performance table to replace")
	flags.StringVar(&s.medians, "published", filepath.Join("report", "published"), "directory for the medians of the results")
	flags.StringVar(&s.corpus, "corpus", "../../shared/debian-packages.ndjson.gz", "NDJSON of real records; steps that need it are skipped without it")
	flags.BoolVar(&s.render, "render", false, "measure nothing, write the pages from the -published files")
	var names []string
	command.Words(flags, &names, "steps", strings.Join(stepNames(), ","), "steps to run", stepNames()...)
	more := flags.String("args", "", "additional flags for the programs of these -steps")
	flags.BoolVar(&s.dryRun, "dry-run", false, "print the commands and run none")
	if err := command.Parse(flags, args); err != nil {
		return s, err
	}
	if !slices.Contains(sizes, s.size) {
		return s, fmt.Errorf("-size must be one of %s", strings.Join(sizes, ", "))
	}
	if s.files = strings.Split(*files, ","); *files == "" {
		s.files = []string{filepath.Join("results", s.size+".ndjson")}
	}
	for _, one := range steps {
		if slices.Contains(names, one.name) {
			s.chosen = append(s.chosen, one)
		}
	}
	if s.more = strings.Fields(*more); len(s.more) > 0 && len(s.chosen) == len(steps) {
		return s, errors.New("-args requires -steps")
	}
	return s, nil
}

func run(ctx context.Context, args []string) (err error) {
	s, err := parse(args)
	if err != nil {
		return err
	}
	if !s.render {
		if s.tempDir, err = os.MkdirTemp("", "report-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(s.tempDir)) }()
		if err = s.measure(ctx); s.dryRun || ctx.Err() != nil {
			return err
		}
		err = errors.Join(err, s.publish())
	}
	return errors.Join(err, s.write())
}

// publish writes the medians of the results to a file for each model of processor.
func (s *settings) publish() error {
	all, err := results.Read(s.files...)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("no results yet")
	}
	if err := os.MkdirAll(s.medians, 0o755); err != nil {
		return err
	}
	for _, name := range distinct(all, processor) {
		ours := slices.DeleteFunc(slices.Clone(all), func(r results.Result) bool { return processor(r) != name })
		if err := publishTo(filepath.Join(s.medians, fileName(name)+".ndjson"), condense(current(ours))); err != nil {
			return err
		}
	}
	return nil
}

func publishTo(name string, medians []results.Result) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := results.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Add(medians...), f.Close())
}

// published reads the medians of all models of processors, those with the most results first.
func published(dir string) (sets []set, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.ndjson"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		all, err := results.Read(name)
		if err != nil {
			return nil, err
		}
		sets = append(sets, set{all})
	}
	if len(sets) == 0 {
		return nil, fmt.Errorf("%s: no results: %w", dir, fs.ErrNotExist)
	}
	slices.SortStableFunc(sets, func(a, b set) int { return len(b.all) - len(a.all) })
	return sets, nil
}

// write generates the pages and the table of the README.
func (s *settings) write() error {
	sets, err := published(s.medians)
	if err != nil {
		return err
	}
	for path, page := range pages(s.out, sets) {
		if err := os.WriteFile(path, page, 0o644); err != nil {
			return err
		}
	}
	readme, err := os.ReadFile(s.readme)
	if err != nil {
		return err
	}
	return os.WriteFile(s.readme, replaceTable(readme, sets[0].summary()), 0o644)
}
