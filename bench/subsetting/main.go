// Subsetting measures the subsetting algorithms by the properties that Ward,
// Wankadia and Guliani define in "Reinventing Backend Subsetting at Google"
// (2023), prints tables in Markdown, and draws the article's figure 2 anew.
//
//	go run ./subsetting -picture ../docs/images/subsetting-balance.png
//	go run ./subsetting -large
//
// Nothing in it depends on the machine.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"docstore/boxcarrpc/subset"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "subsetting:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, args []string) error {
	flags := flag.NewFlagSet("subsetting", flag.ContinueOnError)
	picture := flags.String("picture", "", "draw figure 2 to this PNG file")
	large := flags.Bool("large", false, "measure 10,000 frontends and 1,000,000 backends instead, some minutes long")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; see -help", flags.Arg(0))
	}
	var tables bytes.Buffer
	err := printTables(&tables, *large)
	if _, writeErr := out.Write(tables.Bytes()); err == nil {
		err = writeErr
	}
	if err != nil || *picture == "" {
		return err
	}
	return drawPicture(*picture)
}

func printTables(out *bytes.Buffer, large bool) error {
	if large {
		return printLarge(out)
	}
	if err := printProperties(out); err != nil {
		return err
	}
	return printLotSizes(out)
}

// variant is an algorithm with its options.
type variant struct {
	title   string
	name    string
	options subset.Options
}

var variants = []variant{
	{"random", "random", subset.Options{}},
	{"roundrobin", "roundrobin", subset.Options{}},
	{"deterministic", "deterministic", subset.Options{}},
	{"consistent", "consistent", subset.Options{}},
	{"rendezvous", "rendezvous", subset.Options{}},
	{"ringsteady", "ringsteady", subset.Options{}},
	{"ringsteady, backend scaling", "ringsteady", subset.Options{BackendScaling: true}},
	{"ringsteady, both scalings", "ringsteady", subset.Options{BackendScaling: true, FrontendScaling: true}},
	{"rocksteadier", "rocksteadier", subset.Options{}},
}

func (v variant) algorithm() (subset.Algorithm, error) { return subset.ByName(v.name, &v.options) }
