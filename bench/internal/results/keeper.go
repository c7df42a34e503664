package results

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"docstore/bench/internal/machine"
)

// A Keeper measures what a file has not yet.
type Keeper struct {
	Bench, Table string
	Settings     string // what figures depend on besides contestant and phase
	Command      string // that measures it; empty: this program's
	file         *File  // nil: nothing is kept
}

// NewKeeper keeps results in the named file; with no name it keeps none.
func NewKeeper(bench, table, settings, name string) (*Keeper, error) {
	k := &Keeper{Bench: bench, Table: table, Settings: settings}
	if name == "" {
		return k, nil
	}
	var err error
	k.file, err = Open(name)
	return k, err
}

// Close closes the file.
func (k *Keeper) Close() error {
	if k.file == nil {
		return nil
	}
	return k.file.Close()
}

// Key is that of one measurement.
func (k *Keeper) Key(contestant, phase string, round int) Key {
	return Key{Bench: k.Bench, Table: k.Table, Settings: k.Settings, Contestant: contestant, Phase: phase, Round: round}
}

// Has tells whether something was measured before.
func (k *Keeper) Has(contestant, phase string, round int) bool {
	return k.file != nil && k.file.Has(k.Key(contestant, phase, round))
}

// Measure returns the figures that are kept, or else measures them and keeps them.
// Among them "others" is the share of the processors that other processes took.
func (k *Keeper) Measure(contestant, phase string, round int, measure func() (map[string]float64, error)) (map[string]float64, error) {
	key := k.Key(contestant, phase, round)
	if k.file != nil {
		if r, ok := k.file.Find(key); ok {
			return r.Figures, nil
		}
	}
	figures, err := measure()
	if err != nil {
		return nil, err
	}
	return figures, k.Add(contestant, phase, round, figures)
}

// Add keeps figures that were measured now.
func (k *Keeper) Add(contestant, phase string, round int, figures map[string]float64) error {
	if k.file == nil {
		return nil
	}
	if len(figures) == 0 {
		return errors.New("results: no figures")
	}
	r := Now(k.Key(contestant, phase, round), figures)
	if k.Command != "" {
		r.Command = k.Command
	}
	return k.file.Add(r)
}

// Now is a result that was measured now, here, by this program.
func Now(key Key, figures map[string]float64) Result {
	return Result{
		Key:  key,
		Date: time.Now().UTC().Truncate(time.Second), Commit: machine.Commit(), Machine: machine.Name(), Command: commandOf(os.Args),
		Warnings: append(machine.BuildWarnings(), machine.BusyWarnings(figures["others"])...),
		Figures:  figures,
	}
}

// placed are flags, with a value each, that say where something lies and nothing of what
// is measured.
var placed = []string{"-results", "-table", "-bin"}

// commandOf is a command line as others would type it.
func commandOf(args []string) string {
	words := []string{filepath.Base(args[0])}
	for i := 1; i < len(args); i++ {
		switch {
		case slices.Contains(placed, args[i]):
			i++
		case strings.ContainsRune(args[i], filepath.Separator): // a file's place is one's own
			words = append(words, filepath.Base(args[i]))
		default:
			words = append(words, args[i])
		}
	}
	return strings.Join(words, " ")
}
