package placement

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
	"docstore/queue/shard"
)

// fleet is a model of servers that fetch what the map assigns to them, and die.
type fleet struct {
	t       testing.TB
	r       *rand.Rand
	m       *Map
	control Control
	sizes   []int64
	servers map[string]*modelServer // by column and row
}

type modelServer struct {
	column  string
	row     int
	limit   int64
	live    bool
	seen    *Map // the map that it follows, possibly not the latest
	fetched map[int]int64
	ready   map[int]bool
}

func newFleet(t testing.TB, r *rand.Rand) *fleet {
	f := &fleet{t: t, r: r, servers: map[string]*modelServer{}}
	shards := 1 << r.IntN(5)
	f.m = &Map{Collection: "jobs", Layout: shard.Layout{Shards: shards}, Shards: make([]Place, shards)}
	for range shards {
		f.sizes = append(f.sizes, 1+r.Int64N(100))
	}
	for range 1 + r.IntN(3) {
		f.grow()
	}
	return f
}

// grow adds a column.
func (f *fleet) grow() {
	name := fmt.Sprintf("c%d", len(f.servers))
	limit := 300 + f.r.Int64N(5000)
	for row := range 1 + f.r.IntN(3) {
		f.servers[fmt.Sprint(name, "/", row)] = &modelServer{
			column: name, row: row, limit: limit, live: true, seen: f.m, fetched: map[int]int64{}, ready: map[int]bool{},
		}
	}
}

func (f *fleet) states() []ServerState {
	var states []ServerState
	for _, name := range slices.Sorted(maps.Keys(f.servers)) {
		s := f.servers[name]
		if !s.live {
			continue
		}
		one := ServerState{Column: s.column, Row: s.row, Limit: s.limit, Epoch: s.seen.Epoch}
		for _, i := range slices.Sorted(maps.Keys(s.fetched)) {
			one.Used += s.fetched[i]
			one.Shards = append(one.Shards, ShardState{Shard: i, Ready: s.ready[i], Bytes: f.sizes[i], Fetched: s.fetched[i]})
		}
		states = append(states, one)
	}
	return states
}

// work lets each live server fetch something, become ready, or remove the files of shards that have moved.
func (f *fleet) work() {
	for _, name := range slices.Sorted(maps.Keys(f.servers)) {
		s := f.servers[name]
		if !s.live {
			continue
		}
		if f.r.IntN(4) == 0 {
			s.seen = f.m
		}
		held := s.seen.Holds(s.column)
		for _, i := range held {
			s.fetched[i] = min(f.sizes[i], s.fetched[i]+f.r.Int64N(f.sizes[i]+1))
			s.ready[i] = s.fetched[i] == f.sizes[i]
		}
		for i := range s.fetched {
			if !slices.Contains(held, i) && f.r.IntN(4) == 0 {
				if now := f.m.Shards[i]; now.Previous != "" {
					require.NotEqual(f.t, now.Column, s.column, "a move was completed to a server that has not seen it")
				}
				delete(s.fetched, i)
				delete(s.ready, i)
			}
		}
	}
}

// change lets the operator or fate act.
func (f *fleet) change() {
	names := slices.Sorted(maps.Keys(f.servers))
	s := f.servers[names[f.r.IntN(len(names))]]
	switch f.r.IntN(8) {
	case 0:
		f.grow()
	case 1: // killed; the files may be lost
		s.live = false
		if f.r.IntN(2) == 0 {
			s.fetched, s.ready = map[int]int64{}, map[int]bool{}
		}
	case 2, 3:
		s.live, s.seen = true, f.m
	case 4:
		f.control.Paused = !f.control.Paused
	case 5:
		if !slices.Contains(f.control.Drained, s.column) && f.r.IntN(2) == 0 {
			f.control.Drained = append(f.control.Drained, s.column)
		} else {
			f.control.Drained = nil
		}
	default:
		if wanted, _, err := Propose(f.m, f.states(), f.sizes, f.control.Drained); err == nil {
			f.control.Wanted = wanted
		} else {
			require.ErrorIs(f.t, err, ErrNoPlan)
		}
	}
}

// readyOn reports whether all live servers of a column, at least one, are ready.
func (f *fleet) readyOn(column string, i int) bool {
	n := 0
	for _, s := range f.servers {
		if s.column == column && s.live {
			if !s.ready[i] {
				return false
			}
			n++
		}
	}
	return n > 0
}

// step takes a Step and checks it.
func (f *fleet) step() {
	before := *f.m
	before.Shards = slices.Clone(f.m.Shards)
	after, events := Step(f.m, f.states(), f.sizes, f.control)
	require.Equal(f.t, before.Shards, f.m.Shards, "Step changes its argument")
	if len(events) == 0 {
		require.Equal(f.t, before.Shards, after.Shards)
		require.Equal(f.t, before.Epoch, after.Epoch)
	} else {
		require.Equal(f.t, before.Epoch+1, after.Epoch)
	}
	toColumn, moves := map[string]int{}, 0
	for i, p := range after.Shards {
		old := before.Shards[i]
		if p.Column != old.Column && old.Column != "" {
			require.Equal(f.t, old.Next, p.Column, "a shard goes only where it was prepared")
			require.True(f.t, f.readyOn(p.Column, i), "a shard goes only to servers that are ready")
			require.Equal(f.t, old.Column, p.Previous)
		}
		if p.Next != "" {
			toColumn[p.Next]++
			moves++
			require.NotEqual(f.t, p.Column, p.Next)
			if old.Next == "" {
				require.False(f.t, f.control.Paused)
			}
		}
	}
	require.LessOrEqual(f.t, moves, MaxMoves)
	for _, n := range toColumn {
		require.LessOrEqual(f.t, n, MaxMovesToColumn)
	}
	// Unchanged states lead to a fixed point: each move begins and ends once.
	fixed, n := after, 0
	for ; n <= 2*len(after.Shards); n++ {
		if fixed, events = Step(fixed, f.states(), f.sizes, f.control); len(events) == 0 {
			break
		}
	}
	require.LessOrEqual(f.t, n, 2*len(after.Shards), "with unchanged states nothing changes")
	f.m = after
}

// A shard stays where it is served until the servers of the next column are ready for it,
// whatever servers die and whatever operators do. When all is quiet, the plan is reached
// within the limits of the disks.
func TestStep(t *testing.T) {
	const some, all = 300, 100_000
	seeds := testseed.PCG(t)
	for range crashtest.Share(some, all) {
		f := newFleet(t, rand.New(rand.NewPCG(seeds.Uint64(), 1)))
		for range 40 {
			if f.r.IntN(3) == 0 {
				f.change()
			}
			f.work()
			f.step()
		}
		f.settle()
	}
}

// settle revives all servers, applies a plan, and requires that it is reached.
func (f *fleet) settle() {
	f.control.Paused, f.control.Drained = false, nil
	for _, s := range f.servers {
		s.live, s.seen = true, f.m
	}
	for range 60 { // moves in progress complete, and files that have moved are removed
		f.work()
		f.step()
	}
	wanted, _, err := Propose(f.m, f.states(), f.sizes, nil)
	if err != nil {
		require.ErrorIs(f.t, err, ErrNoPlan)
		return
	}
	f.control.Wanted = wanted
	for range 400 {
		f.work()
		f.step()
	}
	for i, p := range f.m.Shards {
		require.Empty(f.t, p.Next)
		if p.Column != wanted[i] {
			require.Fail(f.t, "the plan was not reached", "shard %d is on %q, wanted on %q", i, p.Column, wanted[i])
		}
	}
	_, moves, err := Propose(f.m, f.states(), f.sizes, nil)
	require.NoError(f.t, err)
	require.Empty(f.t, moves, "a placement that was reached needs no moves")
}

func TestStepKeepsShardsOfDeadColumn(t *testing.T) {
	m := &Map{Layout: shard.Layout{Shards: 2}, Shards: []Place{{Column: "a"}, {Column: "b"}}}
	states := []ServerState{{Column: "b", Limit: 100, Used: 10, Shards: []ShardState{{Shard: 1, Ready: true, Bytes: 10, Fetched: 10}}}}
	wanted, moves, err := Propose(m, states, Sizes(m, states), nil)
	require.NoError(t, err)
	require.Empty(t, moves)
	require.Equal(t, []string{"a", "b"}, wanted)
	// Draining the column gives it up.
	wanted, moves, err = Propose(m, states, []int64{10, 10}, []string{"a"})
	require.NoError(t, err)
	require.Len(t, moves, 1)
	require.Equal(t, []string{"b", "b"}, wanted)
}

func TestStepRespectsTheDisk(t *testing.T) {
	m := &Map{Layout: shard.Layout{Shards: 2}, Shards: []Place{{Column: "a"}, {Column: "a"}}}
	full := []ShardState{{Shard: 0, Ready: true, Bytes: 60, Fetched: 60}, {Shard: 1, Ready: true, Bytes: 60, Fetched: 60}}
	states := []ServerState{{Column: "a", Limit: 200, Used: 120, Shards: full}, {Column: "b", Limit: 100}}
	after, events := Step(m, states, Sizes(m, states), Control{Wanted: []string{"b", "b"}})
	require.Len(t, events, 1, "both do not fit")
	require.Equal(t, "b", after.Shards[0].Next)
	require.Empty(t, after.Shards[1].Next)
	require.Equal(t, `shard 0: started, from "a" to "b"`, events[0].String())
}

// A plan that is made during moves continues them: no byte is fetched twice.
func TestProposeContinuesMoves(t *testing.T) {
	m := &Map{Layout: shard.Layout{Shards: 4}, Shards: []Place{{Column: "a"}, {Column: "a"}, {Column: "a"}, {Column: "a", Next: "b"}}}
	states := []ServerState{{Column: "a", Limit: 100}, {Column: "b", Limit: 100}}
	sizes := []int64{10, 10, 10, 10}
	wanted, moves, err := Propose(m, states, sizes, nil)
	require.NoError(t, err)
	require.Empty(t, moves)
	require.Equal(t, []string{"a", "a", "a", "b"}, wanted)
	// To a column that is drained or dead it does not.
	for _, x := range []struct {
		states  []ServerState
		drained []string
	}{{states, []string{"b"}}, {states[:1], nil}} {
		wanted, moves, err = Propose(m, x.states, sizes, x.drained)
		require.NoError(t, err)
		require.Empty(t, moves)
		require.Equal(t, []string{"a", "a", "a", "a"}, wanted)
	}
}
