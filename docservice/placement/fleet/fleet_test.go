package fleet

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/docservice/placement"
	"docstore/docservice/placement/etcdmap"
	"docstore/internal/shardtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func place(column, next string) placement.Place { return placement.Place{Column: column, Next: next} }

func held(shard int, ready bool, fetched int64, manifest uint64) placement.ShardState {
	return placement.ShardState{Shard: shard, Ready: ready, Bytes: 100, Fetched: fetched, Manifest: manifest, Target: 5}
}

func TestDescribe(t *testing.T) {
	m := &placement.Map{Collection: "jobs", Generation: "g", Epoch: 7, Shards: []placement.Place{place("a", ""), place("a", "b"), place("dead", ""), place("", "")}}
	states := []placement.ServerState{
		{Column: "a", Row: 2, Limit: 900, Shards: []placement.ShardState{held(0, true, 100, 5), held(1, true, 100, 4)}},
		{Column: "a", Row: 0, Limit: 800, Used: 200, Shards: []placement.ShardState{held(0, true, 100, 5), held(1, true, 100, 5)}},
		{Column: "b", Row: 0, Limit: 800, Shards: []placement.ShardState{held(1, true, 100, 5)}},
		{Column: "b", Row: 1, Limit: 800, Shards: []placement.ShardState{held(1, false, 30, 0)}},
	}
	control := placement.Control{Paused: true, Drained: []string{"dead"}, Wanted: []string{"a", "b", "b", "b"}}
	f := Describe(m, states, []int64{100, 100, 100, 100}, control)
	require.Equal(t, &Fleet{
		Collection: "jobs", Generation: "g", Epoch: 7, Paused: true, Announced: 5, Shards: 4, Unplaced: 1, Bytes: 400,
		Columns: []Column{
			{
				Name: "a", Shards: []int{0, 1}, Bytes: 200, Limit: 800, Free: []int{1}, Rows: []Row{
					{Row: 0, Shards: 2, Ready: 2, Bytes: 200, Fetched: 200, Used: 200, Limit: 800, Served: 5, Target: 5},
					{Row: 2, Shards: 2, Ready: 2, Bytes: 200, Fetched: 200, Limit: 900, Served: 4, Target: 5, Lagging: 1},
				},
			},
			{
				Name: "b", Shards: []int{}, Limit: 800, Free: []int{2}, Rows: []Row{
					{Row: 0, Shards: 1, Ready: 1, Bytes: 100, Fetched: 100, Limit: 800, Served: 5, Target: 5},
					{Row: 1, Shards: 1, Bytes: 100, Fetched: 30, Limit: 800, Target: 5},
				},
			},
			{Name: "dead", Drained: true, Shards: []int{2}, Bytes: 100, Rows: []Row{}, Free: []int{0, 1, 2}},
		},
		Moves:   []Move{{Shard: 1, From: "a", To: "b", Bytes: 100, Fetched: 30, Servers: 2, Ready: 1}},
		Waiting: 2,
	}, f)
	require.Equal(t, []string{"ready", "lagging", "ready", "fetching"},
		[]string{f.Columns[0].Rows[0].State(), f.Columns[0].Rows[1].State(), f.Columns[1].Rows[0].State(), f.Columns[1].Rows[1].State()})

	// The worst state of a column's shards is reported; "fetching" above is that of an earlier server.
	late, moved := held(0, false, 100, 5), held(2, false, 0, 0)
	late.State, moved.State = "catching_up_increments", "faulted"
	failing := held(1, false, 30, 0)
	failing.State = "waiting_for_store"
	row := describeRow(m, placement.ServerState{Column: "a", Shards: []placement.ShardState{failing, late, moved}})
	require.Equal(t, "waiting_for_store", row.State())

	// Without servers and shards the JSON has lists, not null.
	content, err := json.Marshal(Describe(&placement.Map{}, nil, nil, placement.Control{}))
	require.NoError(t, err)
	require.NotContains(t, string(content), "null")
}

func TestRates(t *testing.T) {
	var r Rates
	start := time.Now()
	rate := func(seconds int, fetched int64) float64 {
		f := &Fleet{Time: start.Add(time.Duration(seconds) * time.Second), Moves: []Move{{Shard: 1, To: "b", Fetched: fetched}}}
		r.Add(f)
		return f.Moves[0].BytesPerSecond
	}
	require.Zero(t, rate(0, 1000))
	require.InDelta(t, 100, rate(1, 1100), 1e-9)
	require.InDelta(t, 100, rate(9, 1900), 1e-9)
	require.InDelta(t, 500, rate(11, 1900+8100-3000), 100, "of the last ten seconds")
	require.Zero(t, rate(30, 10), "the server has begun again")
	r.Add(&Fleet{})
	require.Zero(t, rate(31, 5000), "another move of the same shard")
}

func TestCompare(t *testing.T) {
	m := &placement.Map{Shards: []placement.Place{place("a", ""), place("a", ""), place("a", ""), place("a", "")}}
	sizes := []int64{10, 10, 10, 10}
	states := []placement.ServerState{{Column: "a", Limit: 100}, {Column: "b", Limit: 100}}
	p, err := Compare(m, states, sizes, nil)
	require.NoError(t, err)
	require.Len(t, p.Moves, 1, "one shard from the share is even")
	require.EqualValues(t, 10, p.Bytes)
	require.InDelta(t, 2, p.Before, 1e-9)
	require.InDelta(t, 1.5, p.After, 1e-9)
	again, err := Compare(m, states, sizes, nil)
	require.NoError(t, err)
	require.Equal(t, p.ID, again.ID)

	_, err = Compare(m, []placement.ServerState{{Column: "a", Limit: 15}}, sizes, nil)
	require.ErrorIs(t, err, placement.ErrNoPlan)
	_, err = Compare(m, nil, sizes, []string{"a"})
	require.ErrorIs(t, err, placement.ErrNoPlan)
}

// A plan changes nothing until it is applied, and only the plan that was shown is applied.
func TestApply(t *testing.T) {
	c := shardtest.New(t, 4, 60)
	ctx := shardtest.Context(t)
	c.Start("a", "").Hold(0, 1, 2, 3)
	shown := func() (p *Plan) {
		require.Eventually(t, func() (ok bool) {
			var err error
			p, err = Propose(ctx, c.Store)
			return err == nil
		}, time.Minute, 10*time.Millisecond, "the server reports its state")
		return p
	}
	first := shown()
	require.Len(t, first.Moves, 4, "the shards have no column yet")
	require.Zero(t, first.Bytes)
	control, err := c.Store.Control(ctx)
	require.NoError(t, err)
	require.Equal(t, placement.Control{}, control)

	_, err = Apply(ctx, c.Store, "00000000")
	var changed *ChangedError
	require.ErrorAs(t, err, &changed)
	require.Equal(t, first.ID, changed.Now)
	_, err = Apply(ctx, c.Store, first.ID)
	require.NoError(t, err)
	on := func(column string) func(m *placement.Map) bool {
		return func(m *placement.Map) bool {
			for _, p := range m.Shards {
				if p.Column != column || p.Next != "" {
					return false
				}
			}
			return true
		}
	}
	c.Wait(on("a"))
	f, err := Read(ctx, c.Store)
	require.NoError(t, err)
	require.Equal(t, "placer", f.Leader)
	require.Zero(t, f.Unplaced+f.Waiting)
	require.False(t, f.Time.IsZero())

	// A column is drained in the transaction that applies the plan.
	c.Start("b", "").Hold(0, 1, 2, 3)
	require.Eventually(t, func() bool {
		_, err := Propose(ctx, c.Store, "a")
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	p, err := Apply(ctx, c.Store, "", "a")
	require.NoError(t, err)
	require.Len(t, p.Moves, 4)
	c.Wait(on("b"))
	require.ErrorContains(t, Undrain(ctx, c.Store, "b"), "not drained")
	require.NoError(t, Undrain(ctx, c.Store, "a"))
	require.NoError(t, Pause(ctx, c.Store, true))
	f, err = Read(ctx, c.Store)
	require.NoError(t, err)
	require.True(t, f.Paused)
	require.False(t, f.Columns[0].Drained)
}

func TestReadWithoutMap(t *testing.T) {
	c := shardtest.New(t, 1, 1)
	other, err := etcdmap.Open(c.Etcd.Address, "other", nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close()) }()
	_, err = Read(shardtest.Context(t), other)
	require.ErrorIs(t, err, etcdmap.ErrNoMap)
	_, err = Apply(shardtest.Context(t), other, "")
	require.ErrorIs(t, err, etcdmap.ErrNoMap)
}
