package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"docstore/bench/internal/machine"
	"docstore/bench/internal/results"
)

// A set holds condensed results of one model of processor: one for each table, contestant and phase.
type set struct{ all []results.Result }

// noisy is the figure that is set to 1 where the rounds differ by more than maxSpread or
// other processes used too much processor time.
const (
	noisy     = "noisy"
	maxSpread = 0.25 // of the median, on either side
)

// primary are the figures whose spread decides whether a result is noisy.
var primary = []string{"ops/s", "documents/s", "jobs/s", "updates/s", "ns/op", "ratio"}

// condense replaces the rounds of each table, contestant and phase by their medians.
func condense(all []results.Result) (condensed []results.Result) {
	at := map[results.Key]int{}
	rounds := map[results.Key]map[string][]float64{}
	for _, r := range all {
		key := r.Key
		key.Round = 1
		if _, ok := at[key]; !ok {
			at[key], rounds[key] = len(condensed), map[string][]float64{}
			r.Key, r.Warnings = key, nil
			condensed = append(condensed, r)
		}
		for name, figure := range r.Figures {
			rounds[key][name] = append(rounds[key][name], figure)
		}
	}
	for i, r := range condensed {
		figures := map[string]float64{}
		for name, numbers := range rounds[r.Key] {
			spread := results.SpreadOf(numbers)
			figures[name] = spread.Median
			wide := slices.Contains(primary, name) && (spread.Greatest-spread.Least)/2 > maxSpread*spread.Median
			if wide || name == "others" && len(machine.BusyWarnings(spread.Greatest)) > 0 {
				figures[noisy] = 1
			}
		}
		delete(figures, "others")
		condensed[i].Figures = figures
	}
	return condensed
}

// of returns the results of a table, a contestant and a phase; empty names match everything.
func (s set) of(table, contestant, phase string) (found []results.Result) {
	for _, r := range s.all {
		if r.Table == table && (contestant == "" || r.Contestant == contestant) && (phase == "" || r.Phase == phase) {
			found = append(found, r)
		}
	}
	return found
}

// A cell is the median of a figure.
type cell struct {
	median float64
	noisy  bool
}

// cell finds a figure; ok is false if it was not measured.
func (s set) cell(table, contestant, phase, figure string) (c cell, ok bool) {
	for _, r := range s.of(table, contestant, phase) {
		if f, ok := r.Figures[figure]; ok {
			return cell{f, r.Figures[noisy] > 0}, true
		}
	}
	return c, false
}

// phases returns the phases of a table in the order in which they were measured.
func (s set) phases(table string) []string {
	return distinct(s.of(table, "", ""), func(r results.Result) string { return r.Phase })
}

func (s set) contestants(table string) []string {
	return distinct(s.of(table, "", ""), func(r results.Result) string { return r.Contestant })
}

// distinct returns the different values of a property, in order of first occurrence.
func distinct(all []results.Result, of func(results.Result) string) (values []string) {
	for _, r := range all {
		if value := of(r); value != "" && !slices.Contains(values, value) {
			values = append(values, value)
		}
	}
	return values
}

// best returns the contestant with the greatest figure, or with the least.
func (s set) best(table, phase, figure string, least bool, contestants ...string) (name string, c cell, ok bool) {
	for _, contestant := range contestants {
		one, there := s.cell(table, contestant, phase, figure)
		if there && (!ok || (one.median > c.median) != least) {
			name, c, ok = contestant, one, true
		}
	}
	return name, c, ok
}

// processor returns the model of a result's processor.
func processor(r results.Result) string {
	_, model, _ := strings.Cut(r.Machine, " x ")
	model, _, _ = strings.Cut(model, ",")
	return strings.NewReplacer("(R)", "", " Processor", "").Replace(model)
}

func (s set) processor() string { return processor(s.all[0]) }

// fileName returns a name in the form of file names.
func fileName(name string) string { return strings.ToLower(strings.ReplaceAll(name, " ", "-")) }

// size returns the size of most results.
func (s set) size() (most string) {
	counts := map[string]int{}
	for _, r := range s.all {
		if counts[r.Size]++; counts[r.Size] > counts[most] {
			most = r.Size
		}
	}
	return most
}

// parts returns the results of each of the steps that make up a table.
func (s set) parts(table string) (parts []set) {
	at := map[string]int{}
	for _, r := range s.of(table, "", "") {
		i, ok := at[part(r)]
		if !ok {
			i, parts = len(parts), append(parts, set{})
			at[part(r)] = i
		}
		parts[i].all = append(parts[i].all, r)
	}
	return parts
}

// settingOf returns a setting of a result, empty if it has none of the name.
func settingOf(r results.Result, name string) string {
	for field := range strings.FieldsSeq(r.Settings) {
		if text, ok := strings.CutPrefix(field, name+"="); ok {
			return text
		}
	}
	return ""
}

// numOf returns the number of entries of a result of dbbench.
func numOf(r results.Result) int {
	n, _ := strconv.Atoi(settingOf(r, "num"))
	return n
}

func (c cell) as(format func(float64) string) string {
	if c.noisy {
		return format(c.median) + "*"
	}
	return format(c.median)
}

// number formats a figure with three digits.
func number(f float64) string {
	switch size := math.Abs(f); {
	case size >= 1e6:
		return digits(f/1e6) + "M"
	case size >= 1e4:
		return digits(f/1e3) + "k"
	case size >= 1000:
		return fmt.Sprintf("%.0f", f)
	}
	return digits(f)
}

func digits(f float64) string {
	switch size := math.Abs(f); {
	case size >= 99.95 || size == 0:
		return fmt.Sprintf("%.0f", f)
	case size >= 9.995:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

// duration formats nanoseconds.
func duration(ns float64) string {
	switch {
	case ns >= 1e9:
		return digits(ns/1e9) + "s"
	case ns >= 1e6:
		return digits(ns/1e6) + "ms"
	case ns >= 1e3:
		return digits(ns/1e3) + "us"
	}
	return fmt.Sprintf("%.0fns", ns)
}

// count formats a whole number.
func count(f float64) string {
	if f >= 1e4 {
		return number(f)
	}
	return fmt.Sprintf("%.0f", f)
}

func seconds(s float64) string { return duration(s * 1e9) }

func megabytes(b float64) string { return digits(b/1e6) + "MB" }

func percent(share float64) string { return digits(100*share) + "%" }
