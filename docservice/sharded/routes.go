package sharded

import (
	"time"

	"docstore/boxcarrpc"
	"docstore/docservice"
	"docstore/docservice/placement"
)

// RemovedPoolTime is the time after which the pool of a column that has left the placement
// is closed.
const RemovedPoolTime = time.Minute

// column is a column of the placement.
type column struct {
	name   string
	pool   *boxcarrpc.Pool
	client *docservice.Client
	plain  *docservice.Client
}

// routes is an immutable view of a placement.
type routes struct {
	placement *placement.Map
	columns   map[string]*column
	// byShard has the columns to ask for a shard, in this order: the holder, the previous
	// one and the next one, whose servers may serve it, too. The first one is nil if the
	// shard has no place.
	byShard [][places]*column
}

// places is the number of columns that may serve a shard.
const places = 3

// newRoutes returns the routes of a map. Columns of the routes before are reused; old are
// those that the map has no longer. open returns nil if it cannot make a pool.
func newRoutes(m *placement.Map, before *routes, open func(name string) *column) (after *routes, old []*column) {
	after = &routes{placement: m, columns: map[string]*column{}, byShard: make([][places]*column, m.Layout.Shards)}
	known := map[string]*column{}
	if before != nil {
		known = before.columns
	}
	get := func(name string) *column {
		c, found := after.columns[name]
		if name == "" || found {
			return c
		}
		if c = known[name]; c == nil {
			c = open(name)
		}
		if c != nil {
			after.columns[name] = c
		}
		return c
	}
	for i, p := range m.Shards {
		after.byShard[i] = [places]*column{get(p.Column), get(p.Previous), get(p.Next)}
	}
	for name, c := range known {
		if after.columns[name] == nil {
			old = append(old, c)
		}
	}
	return after, old
}

// holders returns the columns that hold a shard. A column that held or is to hold one may
// have no servers.
func (r *routes) holders() map[*column]bool {
	holders := map[*column]bool{}
	for _, of := range r.byShard {
		if of[0] != nil {
			holders[of[0]] = true
		}
	}
	return holders
}

// choose returns a column to ask for a shard, or nil: the holder for place 0, other columns
// that may serve it, if there are any, for 1 and 2.
func (r *routes) choose(shard, place int) *column {
	of := &r.byShard[shard]
	if c := of[place%places]; c != nil {
		return c
	}
	return of[0]
}
