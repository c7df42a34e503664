// Report runs all benchmarks and writes bench/README.md and the table in README.md:
//
//	make bench-report                      the quick size, 20 minutes
//	make bench-report SIZE=full            the full size, hours
//	cd bench && go run ./report -render    only the pages, from report/published
//
// Each measurement is a line in bench/results/SIZE.ndjson. An interrupted report resumes. Rivals
// that are not installed are skipped with a message.
//
// To measure single steps:
//
//	go run ./report -steps documents,debian
//	go run ./report -size full -steps article -args "-engine docstore,pebble -rounds 1"
//
// Results are added to the file, and steps that it already has are skipped. They are merged with
// report/published, which has a file for each model of processor with the medians of each table's
// latest settings and of each cell's latest commit; the pages are generated from these files by the
// templates page.md and sections.md. The model with the most results has the main page, another one
// bench/MODEL.md. steps.txt has the commands.
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
	file    string // of results
	root    string // of the repository
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
	flags.StringVar(&s.file, "results", "", "file of results, to which new ones are added; default results/SIZE.ndjson")
	flags.StringVar(&s.root, "root", "..", "repository in which to write the medians of the results, bench/*.md and the table of README.md")
	flags.StringVar(&s.corpus, "corpus", "debian.ndjson.gz", "NDJSON of real records, which bench/corpus makes; steps that need it are skipped without it")
	flags.BoolVar(&s.render, "render", false, "measure nothing, write the pages from the published results")
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
	if s.file == "" {
		s.file = filepath.Join("results", s.size+".ndjson")
	}
	for _, one := range steps {
		if slices.Contains(names, one.table) {
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

// medians returns the directory of condensed results.
func (s *settings) medians() string { return filepath.Join(s.root, "bench", "report", "published") }

// publish merges the medians of the results with the published ones of the same model of processor.
func (s *settings) publish() error {
	all, err := results.Read(s.file)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("no results yet")
	}
	if err := os.MkdirAll(s.medians(), 0o755); err != nil {
		return err
	}
	for _, name := range distinct(all, processor) {
		if err := s.publishFor(name); err != nil {
			return err
		}
	}
	return nil
}

// publishFor is publish for a model of processor.
func (s *settings) publishFor(name string) error {
	file := filepath.Join(s.medians(), fileName(name)+".ndjson")
	files := []string{file, s.file}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		files = files[1:]
	}
	all, err := results.Read(files...)
	if err != nil {
		return err
	}
	ours := slices.DeleteFunc(all, func(r results.Result) bool { return processor(r) != name })
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := results.Open(file)
	if err != nil {
		return err
	}
	return errors.Join(f.Add(condense(current(ours))...), f.Close())
}

// published reads the medians of all models of processors, those with the most results first.
func (s *settings) published() (sets []set, err error) {
	names, err := filepath.Glob(filepath.Join(s.medians(), "*.ndjson"))
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
		return nil, fmt.Errorf("%s: no results: %w", s.medians(), fs.ErrNotExist)
	}
	slices.SortStableFunc(sets, func(a, b set) int { return len(b.all) - len(a.all) })
	return sets, nil
}

// The table of the README is between these lines.
const (
	tableBegin = "<!-- performance: begin -->\n"
	tableEnd   = "<!-- performance: end -->"
)

// generate returns the contents of the pages and of the README, by path.
func (s *settings) generate() (map[string]string, error) {
	sets, err := s.published()
	if err != nil {
		return nil, err
	}
	files, err := pages(sets)
	if err != nil {
		return nil, err
	}
	summary, err := readmeTable(sets[0])
	if err != nil {
		return nil, err
	}
	readme, err := os.ReadFile(filepath.Join(s.root, "README.md"))
	if err != nil {
		return nil, err
	}
	before, rest, ok := strings.Cut(string(readme), tableBegin)
	_, after, ended := strings.Cut(rest, tableEnd)
	if !ok || !ended {
		return nil, errors.New("README.md has no marks of the performance table")
	}
	files["README.md"] = before + tableBegin + "\n" + summary + "\n" + tableEnd + after
	return files, nil
}

// write generates the pages and the table of the README.
func (s *settings) write() error {
	files, err := s.generate()
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(s.root, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}
