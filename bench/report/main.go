// Report runs all benchmarks and writes docs/benchmarks.md of what they have measured:
//
//	make bench-report                 the quick size, in twenty minutes
//	make bench-report SIZE=full       the full size, in hours
//	cd bench && go run ./report -render    the page alone, of the results that there are
//
// Each measurement is a line in a file of results, bench/results/SIZE.ndjson. A report that
// was interrupted goes on where it stopped. A rival that is not installed is left out, and
// a line says what to install.
//
// Parts of it are measured by themselves, and merged with what other files have:
//
//	go run ./report -results results/new.ndjson,results/quick.ndjson -steps documents,debian
//	go run ./report -size full -results results/new.ndjson,results/quick.ndjson -steps article -args "-engine docstore,pebble -rounds 1"
//
// Results go to the first file, and only what that has is not measured again. The page shows
// of each table the settings that were measured last, and of each of its cells the commit
// that measured last; what a table is of, it says.
//
// What was measured decides which goal is reached and where the rivals are ahead. Why is
// written in reasons.go, by hand.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"docstore/bench/internal/results"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// settings is what the flags say.
type settings struct {
	size    string
	files   []string // of results; the first one grows
	out     string
	images  string
	corpus  string
	render  bool
	chosen  []step
	more    []string // arguments of the chosen steps
	dryRun  bool
	tempDir string
}

func parse(args []string) (s settings, err error) {
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	flags.StringVar(&s.size, "size", "quick", "quick, full or tiny, which only proves that everything runs")
	files := flags.String("results", "", "files of results, separated by commas, the first to be added to; the default is results/SIZE.ndjson")
	flags.StringVar(&s.out, "out", "../docs/benchmarks.md", "page to write")
	flags.StringVar(&s.images, "images", "images", "directory of the pictures, below that of the page")
	flags.StringVar(&s.corpus, "corpus", "../../shared/debian-packages.ndjson.gz", "NDJSON of real records; steps that want it are left out without it")
	flags.BoolVar(&s.render, "render", false, "measure nothing, only write the page")
	names := flags.String("steps", "", "what to run, separated by commas; the default is all: "+strings.Join(stepNames(), ", "))
	more := flags.String("args", "", "flags for the programs of these steps, behind their own, such as -engine or -rounds")
	flags.BoolVar(&s.dryRun, "dry-run", false, "print the commands and run none")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if !slices.Contains(sizes, s.size) || flags.NArg() > 0 {
		return s, fmt.Errorf("want a -size of %s, and no arguments", strings.Join(sizes, ", "))
	}
	if s.files = strings.Split(*files, ","); *files == "" {
		s.files = []string{filepath.Join("results", s.size+".ndjson")}
	}
	wanted := stepNames()
	if *names != "" {
		wanted = strings.Split(*names, ",")
	}
	for _, name := range wanted {
		if !slices.Contains(stepNames(), name) {
			return s, fmt.Errorf("-steps %s: there are %s", *names, strings.Join(stepNames(), ", "))
		}
	}
	for _, one := range steps {
		if slices.Contains(wanted, one.name) {
			s.chosen = append(s.chosen, one)
		}
	}
	if s.more = strings.Fields(*more); len(s.more) > 0 && *names == "" {
		return s, errors.New("-args is for the programs of some -steps")
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
	}
	return errors.Join(err, s.write()) // of what there is, whatever has failed
}

// write writes the page and its pictures.
func (s *settings) write() error {
	all, err := results.Read(s.files...)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("there are no results yet")
	}
	p := page{set: set{current(all)}}
	if p.pictures, err = drawAll(p.set, filepath.Dir(s.out), s.images); err != nil {
		return err
	}
	return os.WriteFile(s.out, p.render(), 0o644)
}
