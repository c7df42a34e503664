// Package results stores benchmark results in files of JSON lines, one for each contestant, phase
// and round:
//
//	{"bench":"dbbench","table":"article","settings":"num=10000000 ...","contestant":"pebble",
//	 "phase":"fillrandom","round":2,"date":"2026-11-21T13:00:00Z","commit":"7d8d21f",
//	 "machine":"2 x ...","command":"dbbench -num 10000000","figures":{"ops/s":287000,"p99 ns":5100}}
//
// Lines are only appended: an interrupted run resumes, and files of several runs can be merged.
package results

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// A Key identifies a measurement.
type Key struct {
	Bench      string `json:"bench"`    // the program
	Table      string `json:"table"`    // of the report
	Settings   string `json:"settings"` // other conditions
	Contestant string `json:"contestant"`
	Phase      string `json:"phase"`
	Round      int    `json:"round"` // from 1
}

// A Result has the figures of a contestant in a phase of a round.
type Result struct {
	Key

	Size     string    `json:"size,omitempty"` // of the report that measured it
	Date     time.Time `json:"date"`
	Commit   string    `json:"commit"`
	Machine  string    `json:"machine"`
	Command  string    `json:"command"`            // program and flags, without file names
	Warnings []string  `json:"warnings,omitempty"` // conditions that distort the figures
	// Figures are named by their unit, with a word before it where there are several.
	Figures map[string]float64 `json:"figures"`
}

// File is a growing file of results. It is not safe for concurrent use.
type File struct {
	file *os.File // nil: in memory
	all  []Result
	at   map[Key]int // index of the last result of each key
}

// Open opens a file to add results, and creates it if necessary. It removes a torn last line. An
// empty name keeps results in memory.
func Open(name string) (*File, error) {
	f := &File{at: map[Key]int{}}
	if name == "" {
		return f, nil
	}
	all, whole, err := read(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f.remember(all)
	if f.file, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	_, seekErr := f.file.Seek(whole, io.SeekStart)
	if err := errors.Join(f.file.Truncate(whole), seekErr); err != nil {
		return nil, errors.Join(err, f.file.Close())
	}
	return f, nil
}

func (f *File) remember(all []Result) {
	for _, r := range all {
		f.at[r.Key] = len(f.all)
		f.all = append(f.all, r)
	}
}

// Has reports whether a key has been measured.
func (f *File) Has(k Key) bool {
	_, ok := f.at[k]
	return ok
}

// Find returns the result of a key.
func (f *File) Find(k Key) (r Result, ok bool) {
	i, ok := f.at[k]
	if ok {
		r = f.all[i]
	}
	return r, ok
}

// Add appends results in one write: an interrupted run has recorded all of them or none.
func (f *File) Add(fresh ...Result) error {
	var lines []byte
	for _, r := range fresh {
		if len(r.Figures) == 0 {
			return fmt.Errorf("results: %s, %s: no figures", r.Contestant, r.Phase)
		}
		line, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("results: %s, %s: %w", r.Contestant, r.Phase, err)
		}
		lines = append(append(lines, line...), '\n')
	}
	f.remember(fresh)
	if f.file == nil {
		return nil
	}
	_, err := f.file.Write(lines)
	return err
}

// Close closes the file.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}

// Read merges files. Of results with the same key it keeps the newest, the last one of equally new
// ones, at the position of the first.
func Read(names ...string) ([]Result, error) {
	var merged []Result
	at := map[Key]int{}
	for _, name := range names {
		all, _, err := read(name)
		if err != nil {
			return nil, err
		}
		for _, r := range all {
			if i, ok := at[r.Key]; ok {
				if !r.Date.Before(merged[i].Date) {
					merged[i] = r
				}
				continue
			}
			at[r.Key] = len(merged)
			merged = append(merged, r)
		}
	}
	return merged, nil
}

// read returns the results of a file, and how many of its bytes are whole lines.
func read(name string) (all []Result, whole int64, err error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, 0, err
	}
	for n := 1; ; n++ {
		line, rest, ok := bytes.Cut(content, []byte{'\n'})
		if !ok {
			return all, whole, nil
		}
		var r Result
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, 0, fmt.Errorf("%s:%d: not a result: %w", name, n, err)
		}
		all, content, whole = append(all, r), rest, whole+int64(len(line))+1
	}
}

// Spread is the median of a figure over the rounds, the least and the greatest.
type Spread struct{ Median, Least, Greatest float64 }

// SpreadOf returns the spread of at least one number. Of an even count the median is
// the mean of the two middle ones.
func SpreadOf(numbers []float64) Spread {
	sorted := slices.SortedFunc(slices.Values(numbers), cmp.Compare)
	n := len(sorted)
	return Spread{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}
}

// AddPercentiles adds percentiles of durations to figures, with a prefix: "p50 ns", "p90 ns", "p99 ns"
// and "p999 ns"; 0 without durations. It sorts the durations.
func AddPercentiles(figures map[string]float64, prefix string, durations []time.Duration) {
	slices.Sort(durations)
	for name, share := range map[string]float64{"p50 ns": 0.5, "p90 ns": 0.9, "p99 ns": 0.99, "p999 ns": 0.999} {
		figures[prefix+name] = 0
		if n := len(durations); n > 0 {
			figures[prefix+name] = float64(durations[int(float64(n-1)*share)])
		}
	}
}
