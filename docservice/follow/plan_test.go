package follow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/queue/publish"
)

func TestNextMove(t *testing.T) {
	record := publish.Record{Bad: []publish.Range{{From: 3, To: 4}}, Generations: []uint64{7}}
	for _, c := range []struct {
		served, next, target uint64
		want                 move
	}{
		{2, 0, 2, stay}, {0, 0, 6, advance}, {1, 0, 2, advance}, {5, 0, 6, advance},
		{2, 0, 1, replace}, {2, 0, 5, replace}, {6, 0, 7, replace}, {7, 0, 6, replace}, {7, 0, 8, advance},
		// Files of the next manifest have arrived.
		{1, 2, 2, advance}, {1, 2, 1, replace}, {0, 2, 1, replace}, {5, 6, 6, advance}, {8, 9, 10, advance}, {2, 3, 5, replace}, {0, 3, 6, replace},
	} {
		require.Equal(t, c.want, nextMove(record, publish.Ref{Number: c.served}, publish.Ref{Number: c.next}, publish.Ref{Number: c.target}, false), "%+v", c)
	}
	require.Equal(t, replace, nextMove(record, publish.Ref{Number: 2}, publish.Ref{}, publish.Ref{Number: 2}, true))
}

func TestCheckpointsThatAreUsedAndRemoved(t *testing.T) {
	record := publish.Record{
		Bad: []publish.Range{{From: 4, To: 4}}, Generations: []uint64{7},
		Retained: []publish.Ref{{Number: 1}}, Announced: publish.Ref{Number: 9},
	}
	require.Equal(t, []uint64{6, 4, 2}, obsoleteCheckpoints(record, []uint64{1, 2, 4, 6, 7, 8}, 2))
	require.Empty(t, obsoleteCheckpoints(record, []uint64{1, 2}, 2))
	for target, want := range map[uint64]uint64{1: 1, 2: 2, 3: 2, 4: 4, 6: 6, 7: 7, 9: 8} {
		require.Equal(t, want, nearestCheckpoint(record, []uint64{1, 2, 4, 6, 7, 8}, target), target)
	}
	require.Equal(t, uint64(2), nearestCheckpoint(record, []uint64{1, 2, 4}, 6), "4 is bad")
	require.Zero(t, nearestCheckpoint(record, []uint64{1, 2}, 8), "the checkpoints are of another queue")
}

func TestNotReady(t *testing.T) {
	began := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	contact := at(1)
	for name, c := range map[string]struct {
		start  start
		status Status
		now    time.Time
		want   string // "": ready
	}{
		"nothing is known":          {start{opened: began}, Status{Served: 3, Target: 3}, at(1), "not read yet"},
		"nothing is announced":      {start{opened: began}, Status{LastContact: contact}, at(1), "no manifest is announced"},
		"increments are not known":  {start{opened: began}, Status{Served: 3, Target: 3, LastContact: contact}, at(9), "newest increment of manifest 3"},
		"target is not fetched":     {start{opened: began, goal: goal{Manifest: 4}}, Status{Served: 3, Target: 4, Error: "full"}, at(1), "manifest 4 has not been fetched: full"},
		"increments are missing":    {start{opened: began, goal: goal{4, 9}}, Status{Served: 4, Target: 4, Increment: 8}, at(1), "8 of 9 increments of manifest 4"},
		"target is not indexed":     {start{opened: began, goal: goal{4, 9}}, Status{Served: 4, Target: 4, Increment: 9}, at(1), "not been indexed"},
		"without the bucket":        {start{opened: began}, Status{Served: 3, Target: 3}, at(5), "not been indexed"},
		"kept, without the bucket":  {start{opened: began, kept: goal{3, 9}}, Status{Served: 3, Target: 3}, at(5), "0 of 9 increments"},
		"reached":                   {start{opened: began, goal: goal{Manifest: 3}, reached: true}, Status{Served: 3, Target: 9, Current: began}, at(60), ""},
		"reached, but out of date":  {start{opened: began, goal: goal{Manifest: 3}, reached: true}, Status{Served: 3, Target: 9, Current: began}, at(61), "--max-staleness"},
		"new target while starting": {start{opened: began, goal: goal{Manifest: 4}}, Status{Served: 3, Target: 5}, at(1), "manifest 4 has not been fetched"},
	} {
		c.start.goal = startGoal(c.start, c.status, c.now)
		got := sourceOf(c.start, c.status, time.Minute, c.now).Report()
		require.Contains(t, got.Reason(), c.want, name)
		require.Equal(t, c.want == "", got.IsReady(), name)
	}
}
