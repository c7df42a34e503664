package main

import (
	"slices"

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
