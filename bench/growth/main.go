// Growth measures an index, and a daemon with its queue, at several sizes while they grow.
//
//	go run ./growth -dir DIR -entries 300000000
//	go run ./growth -dir DIR -file debian.ndjson.gz -documents 1000000,3000000,10000000,30000000
//	go run ./growth -samples growth/published.ndjson -pictures ../docs/images
//
// -samples keeps the measurements in a file, to which a run adds its own. -pictures draws all of the file.
// growth/published.ndjson has those of lsm/performance.md and docs/serving.md.
//
// The index, with keys of 8 and values of 12 bytes, is measured while the writer pauses: writes, reads,
// memory, disk, descriptors, merge debt, and the time of a restart. Reads begin when no merge is in
// progress.
//
// The documents are those of a file, repeated with other ids and some other words. For each size,
// docstore-updater appends up to it, and docserviced builds its index from nothing, starts a second
// time, and is asked for documents. A later run continues the queue.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"docstore/bench/internal/command"
	"docstore/bench/internal/machine"
)

type options struct {
	dir, file         string
	samples, pictures string
	entries, reads    int
	documents         []int
}

func main() {
	command.MainContext(func(ctx context.Context, args []string) error {
		o, err := parse(args)
		if err != nil {
			return err
		}
		return o.run(ctx)
	})
}

// mostDocuments keeps the numbers of documents within their ids.
const mostDocuments = 1_000_000_000

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("growth", flag.ContinueOnError)
	flags.StringVar(&o.dir, "dir", "", "directory of the stores")
	flags.IntVar(&o.entries, "entries", 0, "entries of the index, whose directory must be empty or missing; 0: no index")
	flags.IntVar(&o.reads, "reads", 200_000, "reads of each kind for each size of the index")
	flags.StringVar(&o.samples, "samples", "", "NDJSON file of earlier measurements, to which those of this run are added; empty: none")
	flags.StringVar(&o.pictures, "pictures", "", "draw all measurements into this `directory`; empty: do not")
	flags.StringVar(&o.file, "file", "", "NDJSON, gzipped or not, from whose lines the documents are derived; empty: no documents")
	command.Numbers(flags, &o.documents, "documents", "1000000,3000000,10000000,30000000", 1, mostDocuments, "numbers of documents, increasing")
	return o, command.Parse(flags, args)
}

func (o *options) run(ctx context.Context) error {
	measures := o.entries > 0 || o.file != ""
	if o.entries < 0 || o.reads < 1 || measures && o.dir == "" || !measures && o.pictures == "" {
		return errors.New("want -dir with -entries or -file, or -pictures; counts must not be negative")
	}
	s, err := readSamples(o.samples)
	if err != nil {
		return err
	}
	if measures {
		fmt.Printf("%s, commit %s\n", machine.Name(), machine.Commit())
	}
	if o.entries > 0 {
		if err := o.growIndex(s); err != nil {
			return fmt.Errorf("entries: %w", err)
		}
	}
	if o.file != "" {
		if err := o.measureCollection(ctx, s.add); err != nil {
			return err
		}
	}
	if o.pictures == "" {
		return nil
	}
	return s.draw(o.pictures)
}

func (o *options) growIndex(s *samples) error {
	dir := filepath.Join(o.dir, "entries")
	if found, err := os.ReadDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	} else if len(found) > 0 {
		return fmt.Errorf("%s is not empty", dir)
	}
	return measureIndex(dir, o.entries, o.reads, s.add)
}
