package column

import (
	"maps"
	"slices"
	"time"

	"docstore/docservice/placement"
)

// PressurePercent is the part of the limit of the data directory above which the files of
// moved shards are removed before KeepMoved has passed.
const PressurePercent = 85

// shard is the state of a shard on this server.
type shard struct {
	moved time.Time // when the map ceased to assign it to this column; zero: it assigns it
	bytes int64     // of its files
}

// disk is the use of the data directory. A limit of 0 means that it is not known.
type disk struct{ used, limit int64 }

// actions lead from the present shards to those of a map.
type actions struct {
	open   []int // assigned and not here
	stay   []int // here and assigned again
	leave  []int // here and no longer assigned: they are kept for a time
	remove []int // here, moved, and kept long enough
	expect []int // those whose holder is this column
}

// decide returns the actions of a server of a column.
func decide(m *placement.Map, column string, present map[int]shard, d disk, now time.Time, keep time.Duration) actions {
	var a actions
	var kept []int // moved, in the order of their moves
	for i, p := range m.Shards {
		if p.Column == column {
			a.expect = append(a.expect, i)
		}
		one, here := present[i]
		assigned := p.Column == column || p.Next == column || p.Column == ""
		switch {
		case !here && assigned && p.Column != "":
			a.open = append(a.open, i)
		case !here:
		case assigned && !one.moved.IsZero():
			a.stay = append(a.stay, i)
		case assigned:
		case one.moved.IsZero():
			a.leave = append(a.leave, i)
		case now.Sub(one.moved) >= keep:
			a.remove = append(a.remove, i)
			d.used -= one.bytes
		default:
			kept = append(kept, i)
		}
	}
	slices.SortStableFunc(kept, func(i, j int) int { return present[i].moved.Compare(present[j].moved) })
	for _, i := range kept {
		if d.limit == 0 || d.used <= d.limit/100*PressurePercent {
			break
		}
		a.remove = append(a.remove, i)
		d.used -= present[i].bytes
	}
	return a
}

// choose returns the column that a new server joins: the one where its address has a row, or
// the one with the fewest rows; empty: there is none. rows has the address of each row of
// each column.
func choose(rows map[string]map[int]string, address string) string {
	chosen := ""
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		for _, holder := range rows[name] {
			if holder == address {
				return name
			}
		}
		if chosen == "" || len(rows[name]) < len(rows[chosen]) {
			chosen = name
		}
	}
	return chosen
}

// columns returns the names of the columns that a new server may join.
func columns(m *placement.Map, states []placement.ServerState, drained []string) []string {
	names := map[string]bool{}
	for _, one := range states {
		names[one.Column] = true
	}
	if m != nil {
		for _, p := range m.Shards {
			names[p.Column], names[p.Next] = true, true
		}
	}
	delete(names, "")
	for _, name := range drained {
		delete(names, name)
	}
	return slices.Sorted(maps.Keys(names))
}
