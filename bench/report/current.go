package main

import (
	"slices"

	"docstore/bench/internal/results"
)

// current leaves out what newer results have taken the place of, and tables that no step
// makes any more. Of a table those stay whose
// settings were measured last; and of what a contestant did in a phase, those of the commit
// that measured it last: a median is of one commit.
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

// part is what of a page a result belongs to: its table, and where several steps make one
// table together, the settings in which these differ.
func part(r results.Result) string {
	name := r.Table
	if s, ok := stepOf(r.Table); ok {
		for _, setting := range s.by {
			name += " " + settingOf(r, setting)
		}
	}
	return name
}
