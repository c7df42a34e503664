package results

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"docstore/bench/internal/machine"
)

// A Keeper records the results of a program. It measures only what its file lacks.
type Keeper struct {
	*File

	Bench, Table string
	Size         string // of the report
	Settings     string // what figures depend on besides contestant and phase
	Command      string // that measures; empty for this program's
	name         string
}

// Flags defines -results and -table.
func (k *Keeper) Flags(flags *flag.FlagSet) {
	k.Bench = flags.Name()
	flags.StringVar(&k.name, "results", "", "file to add results to; those that it has are not measured again")
	flags.StringVar(&k.Table, "table", "", "name of these results in the file")
	flags.StringVar(&k.Size, "size", "", "size of the report that they are part of")
}

// Run opens the file of the flags, calls measure and prints figures of the results. Without -results the
// Keeper keeps results in memory. The settings are what the figures depend on.
func (k *Keeper) Run(settings string, out io.Writer, measure func() error, figures ...string) (err error) {
	if err := k.open(settings); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	if err := measure(); err != nil {
		return err
	}
	return k.Print(out, figures...)
}

func (k *Keeper) open(settings string) (err error) {
	k.Settings = settings
	k.File, err = Open(k.name)
	return err
}

// NewKeeper returns a Keeper of the named file; an empty name keeps results in memory.
func NewKeeper(bench, table, settings, name string) (*Keeper, error) {
	k := &Keeper{Bench: bench, Table: table, name: name}
	return k, k.open(settings)
}

func (k *Keeper) key(contestant, phase string, round int) Key {
	return Key{Bench: k.Bench, Table: k.Table, Settings: k.Settings, Contestant: contestant, Phase: phase, Round: round}
}

// Has reports whether a measurement has been made.
func (k *Keeper) Has(contestant, phase string, round int) bool {
	return k.File.Has(k.key(contestant, phase, round))
}

// Measure returns the recorded figures, or else measures and records them. The figure "others"
// is the share of the processors that other processes took.
func (k *Keeper) Measure(contestant, phase string, round int, measure func() (map[string]float64, error)) (map[string]float64, error) {
	if r, ok := k.Find(k.key(contestant, phase, round)); ok {
		return r.Figures, nil
	}
	figures, err := measure()
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", contestant, phase, err)
	}
	return figures, k.Add(k.Result(contestant, phase, round, figures))
}

// Rounds measures in rounds, interleaving the contestants of a phase.
func (k *Keeper) Rounds(rounds int, phase string, contestants []string, measure func(i int) (map[string]float64, error)) error {
	for round := range rounds {
		for i, name := range contestants {
			if _, err := k.Measure(name, phase, round+1, func() (map[string]float64, error) { return measure(i) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// Result returns a result that was measured now, on this machine, by this program.
func (k *Keeper) Result(contestant, phase string, round int, figures map[string]float64) Result {
	command := k.Command
	if command == "" {
		command = commandOf(os.Args)
	}
	return Result{
		Key: k.key(contestant, phase, round), Size: k.Size,
		Date: time.Now().UTC().Truncate(time.Second), Commit: machine.Commit(), Machine: machine.Name(), Command: command,
		Warnings: append(machine.BuildWarnings(), machine.BusyWarnings(figures["others"])...),
		Figures:  figures,
	}
}

// Print writes a table for each phase: the medians of figures; of the first figure also the least and
// the greatest, and the ratio of the first contestant's to that of the others. Figures that no
// contestant has are left out.
func (k *Keeper) Print(out io.Writer, figures ...string) error {
	var text bytes.Buffer
	fmt.Fprintf(&text, "# %s, %s, commit %s; %s\n", time.Now().UTC().Format("2006-01-02 15:04 UTC"), machine.Name(), machine.Commit(), k.Settings)
	for _, warning := range machine.BuildWarnings() {
		fmt.Fprintln(&text, "# WARNING:", warning)
	}
	all := slices.DeleteFunc(slices.Clone(k.all), func(r Result) bool { return r.Bench != k.Bench || r.Table != k.Table || r.Settings != k.Settings })
	for len(all) > 0 {
		phase := all[0].Phase
		var contestants []string
		rounds := map[string]map[string][]float64{} // by figure and contestant
		all = slices.DeleteFunc(all, func(r Result) bool {
			if r.Phase != phase {
				return false
			}
			if !slices.Contains(contestants, r.Contestant) {
				contestants = append(contestants, r.Contestant)
			}
			for name, f := range r.Figures {
				if rounds[name] == nil {
					rounds[name] = map[string][]float64{}
				}
				rounds[name][r.Contestant] = append(rounds[name][r.Contestant], f)
			}
			return true
		})
		printPhase(&text, phase, contestants, rounds, figures)
	}
	_, err := out.Write(text.Bytes())
	return err
}

func printPhase(out *bytes.Buffer, phase string, contestants []string, rounds map[string]map[string][]float64, figures []string) {
	figures = slices.DeleteFunc(slices.Clone(figures), func(name string) bool { return rounds[name] == nil })
	if len(figures) == 0 {
		return
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	rows := fmt.Appendf(nil, "\n%s\t%s\tratio\tleast\tgreatest\trounds\t\n", phase, strings.Join(figures, "\t"))
	of := func(name, contestant string) Spread {
		if numbers := rounds[name][contestant]; len(numbers) > 0 {
			return SpreadOf(numbers)
		}
		return Spread{math.NaN(), math.NaN(), math.NaN()}
	}
	for _, contestant := range contestants {
		rows = fmt.Appendf(rows, "%s\t", contestant)
		for _, name := range figures {
			rows = fmt.Appendf(rows, "%s\t", format(name, of(name, contestant).Median))
		}
		first := of(figures[0], contestant)
		rows = fmt.Appendf(rows, "%.2f\t%s\t%s\t%d\t\n", of(figures[0], contestants[0]).Median/first.Median,
			format(figures[0], first.Least), format(figures[0], first.Greatest), len(rounds[figures[0]][contestant]))
	}
	_, _ = table.Write(rows)
	_ = table.Flush() // a Buffer returns no errors
}

// format formats a figure by its unit, the last word of its name.
func format(name string, f float64) string {
	switch {
	case math.IsNaN(f):
		return "-"
	case strings.HasSuffix(name, " ns"):
		d, unit := time.Duration(f), time.Duration(1)
		for d/unit >= 1000 {
			unit *= 10
		}
		return d.Round(unit).String()
	case math.Abs(f) >= 100 || f == math.Trunc(f):
		return fmt.Sprintf("%.0f", f)
	}
	return fmt.Sprintf("%.3g", f)
}

// placed are flags, each with a value, that do not influence the figures.
var placed = []string{"-results", "-table", "-size"}

// commandOf returns a command line without the directories of its files.
func commandOf(args []string) string {
	words := []string{filepath.Base(args[0])}
	for i := 1; i < len(args); i++ {
		switch {
		case slices.Contains(placed, args[i]):
			i++
		case strings.ContainsRune(args[i], filepath.Separator):
			words = append(words, filepath.Base(args[i]))
		default:
			words = append(words, args[i])
		}
	}
	return strings.Join(words, " ")
}
