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

// set is all results of a page.
type set struct{ all []results.Result }

// of are the results of a table, a contestant and a phase, one for each round; empty
// names match everything.
func (s set) of(table, contestant, phase string) (found []results.Result) {
	for _, r := range s.all {
		if r.Table == table && (contestant == "" || r.Contestant == contestant) && (phase == "" || r.Phase == phase) {
			found = append(found, r)
		}
	}
	return found
}

// cell is a figure over the rounds.
type cell struct {
	results.Spread
	rounds int
	busy   bool // others took too much of the processors in some round
}

// cell finds a figure; ok is false if it was not measured.
func (s set) cell(table, contestant, phase, figure string) (c cell, ok bool) {
	var numbers []float64
	for _, r := range s.of(table, contestant, phase) {
		if f, ok := r.Figures[figure]; ok {
			numbers = append(numbers, f)
			c.busy = c.busy || len(machine.BusyWarnings(r.Figures["others"])) > 0
		}
	}
	if len(numbers) == 0 {
		return c, false
	}
	c.Spread, c.rounds = results.SpreadOf(numbers), len(numbers)
	return c, true
}

// phases of a table, in the order in which they were measured.
func (s set) phases(table string) []string {
	return s.names(table, func(r results.Result) string { return r.Phase })
}

func (s set) contestants(table string) []string {
	return s.names(table, func(r results.Result) string { return r.Contestant })
}

func (s set) names(table string, of func(results.Result) string) (names []string) {
	for _, r := range s.of(table, "", "") {
		if name := of(r); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// best is the contestant with the greatest figure, or with the least.
func (s set) best(table, phase, figure string, least bool, contestants ...string) (name string, c cell, ok bool) {
	for _, contestant := range contestants {
		one, there := s.cell(table, contestant, phase, figure)
		if there && (!ok || (one.Median > c.Median) != least) {
			name, c, ok = contestant, one, true
		}
	}
	return name, c, ok
}

// withNum is the part of a table whose settings have so many entries.
func (s set) withNum(table string, num int) (part set) {
	for _, r := range s.of(table, "", "") {
		if numOf(r) == num {
			part.all = append(part.all, r)
		}
	}
	return part
}

// parts are the results of each of the steps that make a table together.
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

// settingOf is what a result's settings have behind a name, empty if nothing.
func settingOf(r results.Result, name string) string {
	for field := range strings.FieldsSeq(r.Settings) {
		if text, ok := strings.CutPrefix(field, name+"="); ok {
			return text
		}
	}
	return ""
}

// numOf is the number of entries of a result of dbbench.
func numOf(r results.Result) int {
	n, _ := strconv.Atoi(settingOf(r, "num"))
	return n
}

// String is the median in three digits, and how far the rounds lie apart.
func (c cell) String() string { return c.as(number) }

func (c cell) as(format func(float64) string) string {
	s := format(c.Median)
	if half := (c.Greatest - c.Least) / 2; c.rounds > 1 && c.Median > 0 {
		s += fmt.Sprintf(" ±%.0f%%", math.Round(100*half/c.Median))
	}
	if c.busy {
		s += "*"
	}
	return s
}

// number writes a figure in three digits.
func number(f float64) string {
	switch size := math.Abs(f); {
	case size >= 1e6:
		return digits(f/1e6) + " M"
	case size >= 1e4:
		return digits(f/1e3) + " k"
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

// duration writes nanoseconds.
func duration(ns float64) string {
	switch {
	case ns >= 1e9:
		return digits(ns/1e9) + " s"
	case ns >= 1e6:
		return digits(ns/1e6) + " ms"
	case ns >= 1e3:
		return digits(ns/1e3) + " us"
	}
	return fmt.Sprintf("%.0f ns", ns)
}

// count writes a whole number.
func count(f float64) string {
	if f >= 1e4 {
		return number(f)
	}
	return fmt.Sprintf("%.0f", f)
}

func seconds(s float64) string { return duration(s * 1e9) }

func megabytes(b float64) string { return digits(b/1e6) + " MB" }

func percent(share float64) string { return digits(100*share) + " %" }
