package placement

import (
	"fmt"
	"maps"
	"slices"
)

// Limits of Step.
const (
	// MaxMoves is the maximum number of moves at the same time.
	MaxMoves = 8
	// MaxMovesToColumn is the maximum number of moves to one column at the same time: its
	// servers fetch the files of that many shards.
	MaxMovesToColumn = 2
)

// ServerState is what a server reports about itself. It is the JSON of a key with the
// lease of the server: a server without one is not live.
type ServerState struct {
	Address string `json:"address"`        // HOST:PORT of Boxcar
	Page    string `json:"page,omitempty"` // URL of the status page
	Zone    string `json:"zone,omitempty"`
	Column  string `json:"column"`
	Row     int    `json:"row"`
	// Generation and Epoch are those of the map that the server follows. Earlier servers report no
	// generation.
	Generation string `json:"generation,omitempty"`
	Epoch      uint64 `json:"epoch,omitempty"`
	// Limit is the number of bytes that the server may use for the collection, Used those
	// that it uses, with the files of shards that have moved away.
	Limit int64 `json:"limit"`
	Used  int64 `json:"used"`
	// Shards are those that the server holds or fetches, in ascending order.
	Shards []ShardState `json:"shards,omitempty"`
}

// ShardState is the state of a shard on a server.
type ShardState struct {
	Shard int `json:"shard"`
	// Ready means that the server answers for the shard: its index has the manifest that was
	// the target when the server began to serve it, and the increments that were announced.
	Ready bool `json:"ready"`
	// State is why the shard is not ready, a readiness.State; empty: it is, or an earlier server
	// reports it.
	State string `json:"state,omitempty"`
	// Bytes is the size of the shard when it is complete, and Fetched the part that is here.
	Bytes   int64 `json:"bytes"`
	Fetched int64 `json:"fetched"`
	// Manifest is the number of the manifest that is served, Target that of the target.
	Manifest uint64 `json:"manifest"`
	Target   uint64 `json:"target"`
	// Behind: the target, or an increment of it, has not been served for some time.
	Behind bool `json:"behind,omitempty"`
}

// Control is the decision of the operators. It changes only by their commands.
type Control struct {
	// Paused starts no moves. Those that have begun end.
	Paused bool `json:"paused,omitempty"`
	// Drained are columns that are to hold no shard.
	Drained []string `json:"drained,omitempty"`
	// Wanted is the applied plan: the column of each shard. Empty: no plan was applied.
	Wanted []string `json:"wanted,omitempty"`
}

// Event describes a change of the map, for logs.
type Event struct {
	Shard    int
	From, To string
	// What: "assigned", "started", "completed" or "canceled".
	What string
}

func (e Event) String() string {
	return fmt.Sprintf("shard %d: %s, from %q to %q", e.Shard, e.What, e.From, e.To)
}

// Step returns the map that follows from the states of the servers, the bytes of each shard
// (see Sizes), and the applied plan. The epoch is one more than before if anything has changed. Step is a pure function.
//
//   - A shard without a column is assigned to the wanted one, if each live server of that
//     column has room for it.
//   - A move is started if each live server of the receiving column has room for the shard,
//     and the limits of moves allow it.
//   - A move is completed when each live server of the receiving column, at least one, is
//     ready for the shard and follows the present map. Until then the shard stays where it is.
//   - A move is canceled if another column is wanted.
//
// A server or a whole column that dies changes nothing.
func Step(m *Map, states []ServerState, sizes []int64, c Control) (*Map, []Event) {
	s := newStep(m, states, sizes)
	for i := range s.next.Shards {
		s.end(i, c.wanted(i))
	}
	for i := range s.next.Shards {
		s.begin(i, c.wanted(i), c.Paused)
	}
	if len(s.events) > 0 {
		s.next.Epoch++
	}
	return s.next, s.events
}

// wanted returns the wanted column of a shard, or an empty name.
func (c *Control) wanted(shard int) string {
	if shard < len(c.Wanted) {
		return c.Wanted[shard]
	}
	return ""
}

// step is a Step in progress.
type step struct {
	next    *Map
	columns map[string]*liveColumn
	moves   int
	moving  map[string]int // moves to each column
	sizes   []int64        // by shard
	events  []Event
}

// liveColumn is the live part of a column.
type liveColumn struct {
	servers []ServerState
}

func newStep(m *Map, states []ServerState, sizes []int64) *step {
	copied := *m
	copied.Shards = slices.Clone(m.Shards)
	s := &step{next: &copied, columns: columnsOf(states), moving: map[string]int{}, sizes: sizes}
	for _, p := range m.Shards {
		if p.Next != "" {
			s.moves++
			s.moving[p.Next]++
		}
	}
	return s
}

func columnsOf(states []ServerState) map[string]*liveColumn {
	columns := map[string]*liveColumn{}
	for _, one := range states {
		c := columns[one.Column]
		if c == nil {
			c = &liveColumn{}
			columns[one.Column] = c
		}
		c.servers = append(c.servers, one)
	}
	return columns
}

// Sizes returns the bytes of each shard: the most that a server reports. A manifest has those
// of shards that no server has.
func Sizes(m *Map, states []ServerState) []int64 {
	sizes := make([]int64, len(m.Shards))
	for _, one := range states {
		for _, held := range one.Shards {
			if held.Shard >= 0 && held.Shard < len(sizes) {
				sizes[held.Shard] = max(sizes[held.Shard], held.Bytes)
			}
		}
	}
	return sizes
}

func (s *step) event(shard int, from, to, what string) {
	s.events = append(s.events, Event{shard, from, to, what})
}

// end completes or cancels the move of a shard.
func (s *step) end(i int, wanted string) {
	p := &s.next.Shards[i]
	switch {
	case p.Next == "":
		return
	case wanted != p.Next:
		s.event(i, p.Column, p.Next, "canceled")
	case s.columns[p.Next].ready(i, s.next.Epoch):
		s.event(i, p.Column, p.Next, "completed")
		p.Previous, p.Column = p.Column, p.Next
	default:
		return
	}
	s.moves--
	s.moving[p.Next]--
	p.Next = ""
}

// begin assigns a shard or starts its move.
func (s *step) begin(i int, wanted string, paused bool) {
	p := &s.next.Shards[i]
	to := s.columns[wanted]
	switch {
	case wanted == "" || wanted == p.Column || p.Next != "" || to == nil || paused:
	case !to.fits(i, s.sizes, s.next, wanted):
	case p.Column == "":
		p.Column = wanted
		s.event(i, "", wanted, "assigned")
	case s.moves < MaxMoves && s.moving[wanted] < MaxMovesToColumn:
		p.Next = wanted
		s.moves++
		s.moving[wanted]++
		s.event(i, p.Column, wanted, "started")
	}
}

// ready reports whether each live server follows the map of the epoch and is ready for the
// shard. A server with an older map may be about to remove a shard that was moved away before.
func (c *liveColumn) ready(shard int, epoch uint64) bool {
	if c == nil {
		return false
	}
	for i := range c.servers {
		if held := c.servers[i].shard(shard); held == nil || !held.Ready || c.servers[i].Epoch < epoch {
			return false
		}
	}
	return true
}

// shard returns the state of a shard, or nil.
func (s *ServerState) shard(i int) *ShardState {
	for n := range s.Shards {
		if s.Shards[n].Shard == i {
			return &s.Shards[n]
		}
	}
	return nil
}

// fits reports whether each live server has room for the shard, and for what other moves
// have yet to bring to it.
func (c *liveColumn) fits(shard int, sizes []int64, m *Map, name string) bool {
	for i := range c.servers {
		one := &c.servers[i]
		used := one.Used + one.missing(shard, sizes)
		for other, p := range m.Shards {
			if p.Next == name || p.Column == name {
				used += one.missing(other, sizes)
			}
		}
		if used > one.Limit {
			return false
		}
	}
	return true
}

// missing returns the bytes of a shard that the server has yet to fetch.
func (s *ServerState) missing(shard int, sizes []int64) int64 {
	if held := s.shard(shard); held != nil {
		return max(sizes[shard]-held.Fetched, 0)
	}
	return sizes[shard]
}

// Propose returns a plan for the live columns: the wanted column of each shard, and the
// moves from the present placement to it. sizes has the bytes of each shard, and the limit of
// a column is the smallest of its servers. The shares of columns are in proportion
// to their limits; a drained column has none. The shards of a column without a live server
// stay there, because its machines may return, unless it is drained. A move in progress
// continues, unless its column is drained or has no live server.
func Propose(m *Map, states []ServerState, sizes []int64, drained []string) (wanted []string, moves []Move, err error) {
	live := columnsOf(states)
	columns := LiveColumns(states, drained)
	wanted = make([]string, len(m.Shards))
	var shards []Shard
	var numbers []int // of shards
	for i, p := range m.Shards {
		at := p.Column
		if live[p.Next] != nil && !slices.Contains(drained, p.Next) {
			at = p.Next
		}
		wanted[i] = at
		if at == "" || live[at] != nil || slices.Contains(drained, at) {
			shards, numbers = append(shards, Shard{Bytes: sizes[i], Column: at}), append(numbers, i)
		}
	}
	moves, err = Plan(shards, columns)
	if err != nil {
		return nil, nil, err
	}
	for i := range moves {
		moves[i].Shard = numbers[moves[i].Shard]
		wanted[moves[i].Shard] = moves[i].To
	}
	return wanted, moves, nil
}

// limitWeight is the weight of the column with the highest limit.
const limitWeight = 1000

// LiveColumns returns the columns that have a live server, in the order of their names, with
// the limits and weights of Propose.
func LiveColumns(states []ServerState, drained []string) []Column {
	live := columnsOf(states)
	var columns []Column
	highest := int64(1)
	for _, name := range slices.Sorted(maps.Keys(live)) {
		c := Column{Name: name, Limit: MaxBytes}
		for _, one := range live[name].servers {
			c.Limit = min(c.Limit, max(one.Limit, 0))
		}
		highest = max(highest, c.Limit)
		columns = append(columns, c)
	}
	for i := range columns {
		if c := &columns[i]; !slices.Contains(drained, c.Name) {
			c.Weight = max(1, int(float64(c.Limit)/float64(highest)*limitWeight))
		}
	}
	return columns
}
