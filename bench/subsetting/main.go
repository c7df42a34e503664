// Subsetting measures the subsetting algorithms by the properties of "Reinventing
// Backend Subsetting at Google" (Ward, Wankadia and Guliani, 2023) and prints Markdown
// tables. With -pictures it draws the article's figure 2, also for several lot sizes
// of rocksteadier. The results do not depend on the machine.
//
//	go run ./subsetting -pictures ../boxcarrpc/subset
//	go run ./subsetting -large
package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"

	"docstore/bench/internal/command"
	"docstore/boxcarrpc/subset"
)

// File names of the pictures.
const (
	balancePicture = "subsetting-balance.png"
	lotsPicture    = "subsetting-lots.png"
)

func main() {
	command.Main(func(args []string) error { return run(os.Stdout, args) })
}

func run(out io.Writer, args []string) error {
	flags := flag.NewFlagSet("subsetting", flag.ContinueOnError)
	pictures := flags.String("pictures", "", "draw "+balancePicture+" and "+lotsPicture+" into this `directory`")
	large := flags.Bool("large", false, "measure 10,000 frontends and 1,000,000 backends (takes minutes)")
	if err := command.Parse(flags, args); err != nil {
		return err
	}
	var tables bytes.Buffer
	err := printTables(&tables, *large)
	if _, writeErr := out.Write(tables.Bytes()); err == nil {
		err = writeErr
	}
	if err != nil || *pictures == "" {
		return err
	}
	if err := drawBalance(filepath.Join(*pictures, balancePicture)); err != nil {
		return err
	}
	return drawLots(filepath.Join(*pictures, lotsPicture))
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
	{"rocksteadier", "rocksteadier", subset.Options{}},
}

func (v variant) algorithm() (subset.Algorithm, error) { return subset.ByName(v.name, &v.options) }
