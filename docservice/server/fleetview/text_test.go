package fleetview

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/docservice/placement/fleet"
)

// example is a collection that grows by the column c.
func example() *fleet.Fleet {
	return &fleet.Fleet{
		Collection: "jobs", Generation: "g1", Epoch: 7, Leader: "be-1:7071", Announced: 17, Shards: 64, Bytes: 3 << 30, Waiting: 1, Paused: true, Unplaced: 2,
		Columns: []fleet.Column{
			{Name: "a", Shards: []int{0, 1, 2, 5}, Bytes: 1 << 30, Limit: 4 << 30, Free: []int{1}, Rows: []fleet.Row{
				{Row: 0, Address: "10.0.0.1:7070", Page: "http://10.0.0.1:7071", Zone: "z1", Shards: 4, Ready: 4, Bytes: 1 << 30, Fetched: 1 << 30, Used: 1 << 30, Limit: 4 << 30, Served: 16, Target: 17, Lagging: 4},
			}},
			{Name: "b", Drained: true, Shards: []int{}, Rows: []fleet.Row{}, Free: []int{}},
			{Name: "c", Shards: []int{}, Rows: []fleet.Row{
				{Row: 0, Address: "10.0.0.3:7070", Shards: 1, Bytes: 100 << 20, Fetched: 30 << 20, Used: 30 << 20, Limit: 4 << 30},
			}},
		},
		Moves: []fleet.Move{
			{Shard: 5, From: "a", To: "c", Bytes: 100 << 20, Fetched: 30 << 20, Servers: 1, BytesPerSecond: 10 << 20},
			{Shard: 6, From: "a", To: "c", Bytes: 100 << 20, Servers: 1},
		},
	}
}

func TestLines(t *testing.T) {
	require.Equal(t, `jobs: 64 shards of 3 GiB in 3 columns, epoch 7 of generation g1
placed by be-1:7071; manifest 17 is the newest target
2 shards have no column: run docserviced placement apply
1 move of the plan waits
moves are paused: run docserviced placement resume

column       shards  row  server         zone  state     ready   fetched            used             manifest
a            4       0    10.0.0.1:7070  z1    lagging   4 of 4  1 GiB of 1 GiB     1 GiB of 4 GiB   16 of 17
                     1    free
b (drained)  0            no server
c            0       0    10.0.0.3:7070  -     fetching  0 of 1  30 MiB of 100 MiB  30 MiB of 4 GiB  -

move of shard  from  to  fetched            per second  servers ready
5              a     c   30 MiB of 100 MiB  10 MiB      0 of 1
6              a     c   0 B of 100 MiB     -           0 of 1`, strings.Join(Lines(example()), "\n"))
	empty := strings.Join(Lines(&fleet.Fleet{Collection: "jobs", Generation: "g"}), "\n")
	require.Contains(t, empty, "placed by no daemon: nothing moves")
	require.NotContains(t, empty, "move of shard")
}

func TestRanges(t *testing.T) {
	for want, numbers := range map[string][]int{"": nil, "3": {3}, "0-3, 7": {0, 1, 2, 3, 7}, "1, 3, 5-6": {1, 3, 5, 6}} {
		require.Equal(t, want, Ranges(numbers))
	}
}
