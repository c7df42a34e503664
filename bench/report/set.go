package main

import (
	"slices"
	"strconv"
	"strings"

	"docstore/bench/internal/machine"
	"docstore/bench/internal/results"
)

// current removes results that newer ones replace, and tables that no step makes. Of a table it
// keeps the settings that were measured last; of each contestant and phase, the results of the
// commit that was measured last, so that a median is of one commit.
func current(all []results.Result) []results.Result {
	type cellKey struct{ table, settings, contestant, phase string }
	keyOf := func(r results.Result) cellKey { return cellKey{r.Table, r.Settings, r.Contestant, r.Phase} }
	settings, commits := map[string]results.Result{}, map[cellKey]results.Result{}
	for _, r := range all {
		if last, ok := settings[part(r)]; !ok || !r.Date.Before(last.Date) {
			settings[part(r)] = r
		}
		if last, ok := commits[keyOf(r)]; !ok || !r.Date.Before(last.Date) {
			commits[keyOf(r)] = r
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(r results.Result) bool {
		_, made := stepOf(r.Table)
		return !made || r.Settings != settings[part(r)].Settings || r.Commit != commits[keyOf(r)].Commit
	})
}

// part returns the part of the page to which a result belongs: its table, and if several steps
// make up the table, the settings in which they differ.
func part(r results.Result) string {
	name := r.Table
	if s, ok := stepOf(r.Table); ok {
		for _, setting := range s.by {
			name += " " + settingOf(r, setting)
		}
	}
	return name
}

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

// best returns the contestant with the greatest figure in a phase, or in any if it is empty, or with the
// least.
func (s set) best(table, phase, figure string, least bool, contestants []string) (name string, most float64, ok bool) {
	for _, contestant := range contestants {
		for _, r := range s.of(table, contestant, phase) {
			f, there := r.Figures[figure]
			if there && (!ok || (f > most) != least) {
				name, most, ok = contestant, f, true
			}
		}
	}
	return name, most, ok
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

// settings returns the different numbers of a setting in the results of a table, in order.
func (s set) settings(table, name string) (values []string) {
	values = distinct(s.of(table, "", ""), func(r results.Result) string { return settingOf(r, name) })
	slices.SortFunc(values, func(a, b string) int {
		x, _ := strconv.Atoi(a)
		y, _ := strconv.Atoi(b)
		return x - y
	})
	return values
}

// shape describes the keys and values of the results of a part, empty if they have no prefix_size.
func (s set) shape() string {
	r := s.all[0]
	switch prefix := settingOf(r, "prefix_size"); prefix {
	case "":
		return ""
	case "0":
		return settingOf(r, "key_size") + " + " + settingOf(r, "value_size") + " bytes"
	default:
		return settingOf(r, "key_size") + " + " + settingOf(r, "value_size") + " bytes, prefix of " + prefix
	}
}

// having returns the results with a setting.
func (s set) having(setting string) set {
	return set{slices.DeleteFunc(slices.Clone(s.all), func(r results.Result) bool { return !slices.Contains(strings.Fields(r.Settings), setting) })}
}

// A metric computes a figure; ok is false if it was not measured.
type metric func(s set) (figure float64, ok bool)

// of returns a figure.
func of(table, contestant, phase, figure string) metric {
	return best(table, phase, figure, []string{contestant})
}

// best returns the greatest figure of several contestants.
func best(table, phase, figure string, contestants []string) metric {
	return func(s set) (float64, bool) {
		_, f, ok := s.best(table, phase, figure, false, contestants)
		return f, ok
	}
}

// least returns the least.
func least(table, phase, figure string, contestants []string) metric {
	return func(s set) (float64, bool) {
		_, f, ok := s.best(table, phase, figure, true, contestants)
		return f, ok
	}
}

// over divides a figure by another.
func over(a, b metric) metric {
	return func(s set) (float64, bool) {
		x, ok := a(s)
		y, there := b(s)
		return x / y, ok && there && y != 0
	}
}

// minus subtracts a figure from another.
func minus(a, b metric) metric {
	return func(s set) (float64, bool) {
		x, ok := a(s)
		y, there := b(s)
		return x - y, ok && there
	}
}

// beats divides our figure by that of the best rival; more is better.
func beats(table, phase, figure, ours string, rivals []string) metric {
	return over(of(table, ours, phase, figure), best(table, phase, figure, rivals))
}

// only computes a metric of the results with a setting.
func only(setting string, m metric) metric {
	return func(s set) (float64, bool) { return m(s.having(setting)) }
}

// value is a constant.
func value(f float64) metric { return func(set) (float64, bool) { return f, true } }
