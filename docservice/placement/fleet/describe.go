package fleet

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"docstore/docservice/placement"
	"docstore/docservice/readiness"
)

// Fleet is the state of a collection. Its JSON is that of the fleet page and of the commands.
type Fleet struct {
	Collection string    `json:"collection"`
	Time       time.Time `json:"time"`
	// Generation and Epoch are those of the map.
	Generation string `json:"generation"`
	Epoch      uint64 `json:"epoch"`
	// Leader is the elected placer. It is empty if there is none: then nothing moves.
	Leader string `json:"leader"`
	Paused bool   `json:"paused"`
	// Announced is the highest manifest that is a target of a server.
	Announced uint64   `json:"announced"`
	Shards    int      `json:"shards"`
	Unplaced  int      `json:"unplaced"` // shards without a column
	Bytes     int64    `json:"bytes"`    // of all shards
	Columns   []Column `json:"columns"`
	Moves     []Move   `json:"moves"` // in progress
	// Waiting is the number of moves and assignments of the applied plan that have not begun.
	Waiting int `json:"waiting"`
}

// Column is a column that holds shards, is to hold some, is drained, or has a live server.
type Column struct {
	Name    string `json:"name"`
	Drained bool   `json:"drained"`
	Shards  []int  `json:"shards"` // that are placed here
	Bytes   int64  `json:"bytes"`  // of these shards
	// Limit is the smallest limit of its servers.
	Limit int64 `json:"limit"`
	Rows  []Row `json:"rows"`
	// Free are the numbers without a live server, up to the highest row of all columns.
	Free []int `json:"free"`
}

// Row is a live server.
type Row struct {
	Row     int    `json:"row"`
	Address string `json:"address"`
	Page    string `json:"page,omitempty"`
	Zone    string `json:"zone,omitempty"`
	// Shards are those that the map places here or moves here, and Ready the part of them
	// that the server is ready to answer for.
	Shards int `json:"shards"`
	Ready  int `json:"ready"`
	// Bytes is the size of the shards that the server holds or fetches, and Fetched the part
	// that it has. Used also counts shards that have moved away.
	Bytes   int64 `json:"bytes"`
	Fetched int64 `json:"fetched"`
	Used    int64 `json:"used"`
	Limit   int64 `json:"limit"`
	// Served is the oldest manifest that the server serves, Target the newest that it is to
	// serve. Lagging is the number of its shards that serve an older one than their target, or
	// lack increments.
	Served  uint64 `json:"served"`
	Target  uint64 `json:"target"`
	Lagging int    `json:"lagging"`
	// NotReady is the state of those of its shards that are not ready, the worst one; empty: all
	// are, or it is not known.
	NotReady readiness.State `json:"not_ready,omitempty"`
}

// Move is a move in progress.
type Move struct {
	Shard int    `json:"shard"`
	From  string `json:"from"`
	To    string `json:"to"`
	Bytes int64  `json:"bytes"`
	// Fetched is the part of the bytes that the slowest of the receiving servers has.
	Fetched int64 `json:"fetched"`
	// Servers is the number of live servers of the receiving column, and Ready how many of
	// them are ready. The move is complete when all are.
	Servers int `json:"servers"`
	Ready   int `json:"ready"`
	// BytesPerSecond is the rate at which Fetched grows: see Rates.
	BytesPerSecond float64 `json:"bytes_per_second"`
}

// Lagging is the state of a server that is ready, with a shard that is behind its target.
const Lagging = "lagging"

// State returns the state of a server: a readiness.State, or Lagging.
func (r *Row) State() string {
	switch {
	case r.Ready < r.Shards:
		return string(cmp.Or(r.NotReady, readiness.Fetching))
	case r.Lagging > 0:
		return Lagging
	}
	return string(readiness.Ready)
}

// Has reports whether a column is in the description.
func (f *Fleet) Has(column string) bool {
	return slices.ContainsFunc(f.Columns, func(c Column) bool { return c.Name == column })
}

// Describe returns the state of a collection. sizes has the bytes of each shard.
func Describe(m *placement.Map, states []placement.ServerState, sizes []int64, c placement.Control) *Fleet {
	f := &Fleet{
		Collection: m.Collection, Generation: m.Generation, Epoch: m.Epoch, Paused: c.Paused,
		Shards: len(m.Shards), Columns: []Column{}, Moves: []Move{},
	}
	columns := columnsOf(m, states, c)
	rows := 0
	for _, one := range states {
		rows = max(rows, one.Row+1)
		for _, held := range one.Shards {
			f.Announced = max(f.Announced, held.Target)
		}
	}
	for i, p := range m.Shards {
		f.Bytes += sizes[i]
		if p.Column == "" {
			f.Unplaced++
		} else {
			at := columns[p.Column]
			at.Shards, at.Bytes = append(at.Shards, i), at.Bytes+sizes[i]
		}
		if p.Next != "" {
			f.Moves = append(f.Moves, describeMove(i, p, states, sizes[i]))
		} else if i < len(c.Wanted) && c.Wanted[i] != "" && c.Wanted[i] != p.Column {
			f.Waiting++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(columns)) {
		at := columns[name]
		for _, one := range states {
			if one.Column == name {
				at.add(describeRow(m, one))
			}
		}
		at.Free = freeRows(at.Rows, rows)
		f.Columns = append(f.Columns, *at)
	}
	return f
}

// columnsOf returns the columns without their rows and shards.
func columnsOf(m *placement.Map, states []placement.ServerState, c placement.Control) map[string]*Column {
	columns := map[string]*Column{}
	add := func(name string) {
		if name != "" && columns[name] == nil {
			columns[name] = &Column{Name: name, Drained: slices.Contains(c.Drained, name), Shards: []int{}, Rows: []Row{}}
		}
	}
	for _, p := range m.Shards {
		add(p.Column)
		add(p.Next)
	}
	for _, one := range states {
		add(one.Column)
	}
	for _, name := range slices.Concat(c.Drained, c.Wanted) {
		add(name)
	}
	return columns
}

func (c *Column) add(r Row) {
	if len(c.Rows) == 0 || r.Limit < c.Limit {
		c.Limit = r.Limit
	}
	c.Rows = append(c.Rows, r)
	slices.SortFunc(c.Rows, func(a, b Row) int { return cmp.Compare(a.Row, b.Row) })
}

// freeRows returns the numbers below n that no row has.
func freeRows(rows []Row, n int) []int {
	free := []int{}
	for i := range n {
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.Row == i }) {
			free = append(free, i)
		}
	}
	return free
}

func describeRow(m *placement.Map, one placement.ServerState) Row {
	r := Row{Row: one.Row, Address: one.Address, Page: one.Page, Zone: one.Zone, Used: one.Used, Limit: one.Limit}
	wanted := map[int]bool{}
	for _, i := range m.Holds(one.Column) {
		wanted[i] = true
	}
	r.Shards = len(wanted)
	for _, held := range one.Shards {
		r.Bytes, r.Fetched = r.Bytes+held.Bytes, r.Fetched+min(held.Fetched, held.Bytes)
		r.Target = max(r.Target, held.Target)
		if !wanted[held.Shard] {
			continue
		}
		if !held.Ready {
			if state := readiness.State(held.State); state.Worse(r.NotReady) {
				r.NotReady = state
			}
			continue
		}
		r.Ready++
		if r.Ready == 1 || held.Manifest < r.Served {
			r.Served = held.Manifest
		}
		if held.Manifest < held.Target || held.Behind {
			r.Lagging++
		}
	}
	return r
}

func describeMove(i int, p placement.Place, states []placement.ServerState, bytes int64) Move {
	v := Move{Shard: i, From: p.Column, To: p.Next, Bytes: bytes}
	for _, one := range states {
		if one.Column != p.Next {
			continue
		}
		var fetched int64
		for _, held := range one.Shards {
			if held.Shard == i {
				fetched = min(held.Fetched, bytes)
				if held.Ready {
					v.Ready++
				}
			}
		}
		if v.Servers == 0 || fetched < v.Fetched {
			v.Fetched = fetched
		}
		v.Servers++
	}
	return v
}
