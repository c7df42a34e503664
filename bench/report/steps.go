package main

import (
	_ "embed" // the steps
	"slices"
	"strings"
)

// sizes of a report. The tiny one only tests that everything runs.
var sizes = []string{"tiny", "quick", "full"}

// A step runs one program once.
type step struct {
	table   string
	by      []string // the settings in which the steps of one table differ
	program string   // of this module; or "gotest", which takes a package and a benchmark
	args    []string // common to all sizes
	sized   map[string][]string
}

// corpus is the argument that stands for the file of real records.
const corpus = "CORPUS"

//go:embed steps.txt
var stepsText string

// steps are in the order of the page.
var steps = parseSteps(stepsText)

func parseSteps(text string) (all []step) {
	for line := range strings.Lines(text) {
		head, rest, _ := strings.Cut(line, ":")
		words, args := strings.Fields(head), strings.Fields(rest)
		switch {
		case strings.HasPrefix(line, "#") || len(words) == 0:
		case strings.HasPrefix(line, "\t"):
			all[len(all)-1].sized[words[0]] = args
		default:
			s := step{table: words[0], program: args[0], args: args[1:], sized: map[string][]string{}}
			if len(words) > 1 {
				s.by = words[2:] // after the word by
			}
			all = append(all, s)
		}
	}
	return all
}

// stepOf returns the first step of a table.
func stepOf(table string) (s step, ok bool) {
	i := slices.IndexFunc(steps, func(s step) bool { return s.table == table })
	if i < 0 {
		return s, false
	}
	return steps[i], true
}

func stepNames() (names []string) {
	for _, s := range steps {
		if !slices.Contains(names, s.table) {
			names = append(names, s.table)
		}
	}
	return names
}
