package readiness

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestIndex(t *testing.T) {
	for name, c := range map[string]struct {
		index Index
		want  State
		text  string
	}{
		"complete":     {Index{State: Ready, Read: 9, Bytes: 9}, Ready, ""},
		"empty":        {Index{State: Indexing, Cause: "not read"}, NoFiles, "no files: no file of the queue has arrived here: is docstore-sync running?"},
		"being read":   {Index{State: Indexing, Cause: "not read", Read: 1 << 30, Bytes: 4 << 30}, Indexing, "indexing 1 GiB of 4 GiB: not read"},
		"files lack":   {Index{State: Indexing, Cause: "not read", Read: 9, Bytes: 9}, WaitingForFiles, "waiting for files: not read"},
		"announced":    {Index{State: WaitingForFiles, Cause: "not here", Read: 9, Bytes: 9}, WaitingForFiles, "waiting for files: not here"},
		"is rebuilt":   {Index{State: Rebuilding, Cause: "damaged", Read: 1024, Bytes: 2048}, Rebuilding, "rebuilding the index 1 KiB of 2 KiB: damaged"},
		"is truncated": {Index{State: Rebuilding, Cause: "truncated", Fault: "a"}, Rebuilding, "rebuilding the index: truncated; a"},
		"stopped":      {Index{State: Faulted, Cause: "a fault", Fault: "2.seg, offset 7", Read: 1, Bytes: 2}, Faulted, "faulted: a fault; 2.seg, offset 7"},
		"stale":        {Index{State: Stale, Cause: "old"}, Stale, "stale: old"},
		"damaged":      {Index{State: Ready, Fault: "of some documents"}, Ready, ""},
	} {
		r := c.index.Report()
		require.Equal(t, c.want, r.State, name)
		require.Equal(t, c.text, r.Reason(), name)
		require.Equal(t, c.want == Ready, r.IsReady(), name)
	}
}

func TestSource(t *testing.T) {
	fetch := &Progress{Done: 1 << 30, Total: 4 << 30, Unit: Bytes, FilesDone: 12, Files: 40}
	for name, c := range map[string]struct {
		source Source
		want   State
		text   string
	}{
		"reached":        {Source{Reached: true, Error: "away"}, Ready, ""},
		"stale":          {Source{Reached: true, Staleness: 90 * time.Second, Error: "away"}, Stale, "stale: the target was last known to be served 1m30s ago, more than --max-staleness: away"},
		"no contact":     {Source{Error: "away"}, WaitingForStore, "waiting for the object store: the state of the collection was not read yet: away"},
		"no manifest":    {Source{Contacted: true}, WaitingForManifest, "waiting for a manifest: no manifest is announced"},
		"no increment":   {Source{Contacted: true, Target: 3}, WaitingForStore, "waiting for the object store: the newest increment of manifest 3 is not known"},
		"before a fetch": {Source{Goal: 3}, Fetching, "fetching: manifest 3 has not been fetched"},
		"fetched":        {Source{Goal: 3, Fetch: fetch, Error: "full"}, Fetching, "fetching 12 of 40 files, 1 GiB of 4 GiB: manifest 3 has not been fetched: full"},
		"made": {
			Source{Goal: 3, Served: 4, Fetch: fetch, Next: &Index{State: Indexing, Read: 1, Bytes: 2}}, Indexing,
			"indexing 1 B of 2 B: the index at manifest 3 is made",
		},
		"made, faulty":         {Source{Goal: 3, Next: &Index{State: Faulted, Cause: "damage"}}, Faulted, "faulted: the index at manifest 3 is made; damage"},
		"made, and increments": {Source{Goal: 3, Next: &Index{State: Ready}}, Indexing, "indexing: the index at manifest 3 is made"},
		"increments": {
			Source{Goal: 3, Served: 3, Increment: 51, GoalIncrement: 600}, CatchingUp,
			"catching up 549 increments: 51 of 600 increments of manifest 3 have been added",
		},
		"an increment": {Source{Goal: 3, Served: 3, GoalIncrement: 1}, CatchingUp, "catching up 1 increment: 0 of 1 increments of manifest 3 have been added"},
		"fetched all":  {Source{Goal: 3, Served: 3, Error: "old"}, Indexing, "indexing: manifest 3 has not been indexed to its end"},
	} {
		r := c.source.Report()
		require.Equal(t, c.want, r.State, name)
		require.Equal(t, c.text, r.Reason(), name)
	}
}

// A copy is ready if its files and its index are, and else has the state that explains more.
func TestCopy(t *testing.T) {
	progress := &Progress{Done: 1, Total: 2, Unit: Bytes}
	for _, files := range states {
		for _, index := range states {
			name := fmt.Sprintf("files %s, index %s", files, index)
			r := Copy(Report{State: files, Cause: "files"}, Report{State: index, Cause: "index", Progress: progress})
			require.Equal(t, files == Ready && index == Ready, r.IsReady(), name)
			switch {
			case files == Ready, index == Faulted, index == Rebuilding:
				require.Equal(t, Report{index, "index", progress}, r, name)
			case files == Indexing && index == Indexing:
				require.Equal(t, Report{Indexing, "files", progress}, r, name)
			default:
				require.Equal(t, Report{State: files, Cause: "files"}, r, name)
			}
		}
	}
}

func TestCombine(t *testing.T) {
	fetching := func(name string, done int64) Part {
		return Part{name, Report{Fetching, "it is fetched", &Progress{Done: done, Total: 10, Unit: Bytes, FilesDone: 1, Files: 2}}}
	}
	indexing := Part{"shard 0", Report{Indexing, "it is read", &Progress{Done: 1, Total: 1000, Unit: Bytes}}}
	faulted := Part{"shard 4", Report{State: Faulted, Cause: "it cannot be opened"}}
	require.Equal(t, Report{State: Ready}, Combine(4, nil))
	require.Equal(t, "indexing 1 B of 1000 B: shard 0: it is read", Combine(1, []Part{indexing}).Reason())
	require.Equal(t, "fetching 2 of 4 files, 12 B of 20 B: 3 of 4 shards are not ready; shard 2: it is fetched",
		Combine(4, []Part{indexing, fetching("shard 2", 3), fetching("shard 3", 9)}).Reason())
	require.Equal(t, "faulted: 3 of 4 shards are not ready; shard 4: it cannot be opened", Combine(4, []Part{indexing, faulted, fetching("shard 2", 3)}).Reason())
}

// Each state has words, and its place among the others.
func TestStates(t *testing.T) {
	require.Len(t, words, len(states)-1)
	for _, s := range states {
		require.Equal(t, s == Ready, Report{State: s}.Reason() == "", s)
	}
}

// at returns a time, amount a report with a progress.
func at(seconds int) time.Time { return time.Unix(1000, 0).Add(time.Duration(seconds) * time.Second) }

func amount(s State, done int64) Report {
	return Report{State: s, Cause: "x", Progress: &Progress{Done: done, Total: 1000, Unit: Bytes}}
}

func TestEstimate(t *testing.T) {
	var m Meter
	left := func(r Report) float64 { return m.Estimate(r).Progress.SecondsLeft }
	for i := range 5 {
		m.Observe(amount(Fetching, int64(10*i)), at(i))
		require.Zero(t, left(amount(Fetching, int64(10*i))), "after %d s", i)
	}
	m.Observe(amount(Fetching, 50), at(5))
	require.InDelta(t, 95, left(amount(Fetching, 50)), 0.01, "950 at 10 per second")
	require.Equal(t, "fetching 60 B of 1000 B, 1 min 34 s left: x", m.Estimate(amount(Fetching, 60)).Reason())
	require.Zero(t, amount(Fetching, 50).Progress.SecondsLeft, "the report itself is not changed")
	require.Zero(t, left(amount(Indexing, 50)), "another state")
	require.Equal(t, Report{State: Ready}, m.Estimate(Report{State: Ready}))

	// Only the last minute counts: without progress in it there is no estimate.
	for i := 6; i <= 66; i++ {
		m.Observe(amount(Fetching, 50), at(i))
	}
	require.Zero(t, left(amount(Fetching, 50)))
	require.LessOrEqual(t, len(m.samples), 61)
	m.Observe(amount(Fetching, 110), at(66))
	require.Zero(t, left(amount(Fetching, 110)), "a second sample within a second is not taken")
	m.Observe(amount(Fetching, 110), at(67))
	require.InDelta(t, 890, left(amount(Fetching, 110)), 0.01, "60 in 60 s")

	// A state that begins again, and another one, have no estimate at first.
	m.Observe(amount(Fetching, 5), at(68))
	require.Zero(t, left(amount(Fetching, 5)))
	m.Observe(amount(Fetching, 15), at(73))
	require.InDelta(t, 492.5, left(amount(Fetching, 15)), 0.01)
	m.Observe(amount(Indexing, 15), at(74))
	require.Zero(t, left(amount(Indexing, 15)))
	m.Observe(amount(Indexing, 1000), at(79))
	require.Zero(t, left(amount(Indexing, 1000)), "nothing is left")
	m.Observe(Report{State: Faulted}, at(80))
	require.Empty(t, m.samples)
}
