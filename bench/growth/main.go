// Growth measures one index and one collection at several sizes while they grow: writes, reads,
// memory, disk, descriptors, merge debt, and the time of a restart.
//
//	go run ./growth -dir DIR -entries 300000000 -documents 30000000 -file debian.ndjson.gz -picture growth.png
//
// A size is measured while the writer pauses. Reads begin when no merge is in progress.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"docstore/bench/internal/command"
	"docstore/bench/internal/machine"
)

type options struct {
	dir, file, picture        string
	entries, documents, reads int
}

func main() {
	command.Main(func(args []string) error {
		o, err := parse(args)
		if err != nil {
			return err
		}
		return o.run()
	})
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("growth", flag.ContinueOnError)
	flags.StringVar(&o.dir, "dir", "", "directory of the stores: empty or missing")
	flags.IntVar(&o.entries, "entries", 0, "entries of the index; 0: no index")
	flags.IntVar(&o.documents, "documents", 0, "documents of the collection; 0: no collection")
	flags.StringVar(&o.file, "file", "", "gzipped NDJSON whose lines are the documents, in turn")
	flags.IntVar(&o.reads, "reads", 200_000, "reads of each kind for each size")
	flags.StringVar(&o.picture, "picture", "", "PNG file to write; empty: none")
	return o, command.Parse(flags, args)
}

func (o *options) run() error {
	if o.dir == "" || o.entries < 0 || o.documents < 0 || o.reads < 1 || o.documents > 0 && o.file == "" {
		return errors.New("-dir is required, and -file with -documents; counts must not be negative")
	}
	if found, err := os.ReadDir(o.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	} else if len(found) > 0 {
		return fmt.Errorf("-dir %s is not empty", o.dir)
	}
	fmt.Printf("%s, commit %s\n", machine.Name(), machine.Commit())
	var all []growth
	for _, part := range []struct {
		what  string
		count int
		open  func(dir string) (store, error)
	}{{"entries", o.entries, openIndex}, {"documents", o.documents, o.openCollection}} {
		if part.count == 0 {
			continue
		}
		fmt.Printf("\n| %s | %s |\n%s\n", part.what, strings.Join(columns, " | "), strings.Repeat("|---", 1+len(columns))+"|")
		g := growth{what: part.what}
		err := g.measure(filepath.Join(o.dir, part.what), part.count, o.reads, part.open, func(s sample) { fmt.Println(s) })
		if err != nil {
			return fmt.Errorf("%s: %w", part.what, err)
		}
		all = append(all, g)
	}
	if o.picture == "" {
		return nil
	}
	return draw(o.picture, all)
}
