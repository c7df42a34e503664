package main

import (
	"slices"
	"strings"

	"docstore/bench/internal/results"
)

// indifferent flags set the rounds and the contestants: results that differ in them only are of
// one size.
var indifferent = []string{"-rounds", "-count", "-engine", "-stores", "-contestants"}

// ownSize is the size of results measured with other flags.
const ownSize = "other flags"

// sizeOf returns the size whose flags the command of a result has; if several match, the one with
// the most flags present.
func sizeOf(r results.Result) (size string) {
	size, most := ownSize, -1
	words := strings.Fields(r.Command)
	for _, s := range steps {
		if s.name != r.Table {
			continue
		}
		for _, one := range sizes {
			if there, ok := matches(words, strings.Fields(s.ofSize(one))); ok && there > most {
				size, most = one, there
			}
		}
	}
	return size
}

// matches counts the flags, each followed by its value, that a command has. All except the
// indifferent ones must be present.
func matches(command, flags []string) (there int, ok bool) {
	for i := 0; i+1 < len(flags); i += 2 {
		at := slices.Index(command, flags[i])
		switch {
		case at >= 0 && at+1 < len(command) && command[at+1] == flags[i+1]:
			there++
		case !slices.Contains(indifferent, flags[i]):
			return there, false
		}
	}
	return there, true
}

// tablesBySize returns the tables with results of each size.
func (s set) tablesBySize() map[string][]string {
	tables := map[string][]string{}
	for _, r := range s.all {
		if size := sizeOf(r); !slices.Contains(tables[size], r.Table) {
			tables[size] = append(tables[size], r.Table)
		}
	}
	return tables
}

// size returns the size of most tables; all also names the tables of other sizes.
func (s set) size() (most, all string) {
	tables := s.tablesBySize()
	names := slices.Concat(sizes, []string{ownSize})
	for _, size := range names {
		if len(tables[size]) > len(tables[most]) {
			most = size
		}
	}
	all = most
	for _, size := range names {
		if size != most && len(tables[size]) > 0 {
			all += "; " + size + ": " + strings.Join(tables[size], ", ")
		}
	}
	return most, all
}
