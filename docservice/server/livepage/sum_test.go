package livepage

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice/readiness"
)

func TestSum(t *testing.T) {
	early, late := time.Unix(100, 0), time.Unix(200, 0)
	one := Collection{
		Name: "jobs/1", Readiness: Readiness{Ready: true, State: readiness.Ready}, Position: "1/2/3", LagBytes: 10, LagDocuments: 1, LagSeconds: 4, VisibleAfter: 1,
		LastAppended: &early, CanarySent: &late, ScrubEnded: &late, Applied: 7, Swept: 1, Quarantined: 2, Scrubbed: 3,
		Gets: Gets{Found: 1, NotFound: 2, Unavailable: 3, Failed: 4}, Faults: []Fault{{Path: "a"}}, MoreFaults: 5,
		Queue: Queue{Bytes: 100, Documents: 10, Deletes: 1, LiveDocuments: 8, Census: &early, Segments: []Segment{{First: 1}}, Mapped: &Mapped{Bytes: 60, ResidentRatio: 0.5}},
		Index: Index{
			Entries: 10, Tables: []Table{{Number: 1}}, MemtableBytes: 1, MemtablesWaiting: 2, LogBytes: 3, Flushes: 1, MergesDone: 4, Amplification: 2,
			Delays: 5, Stalls: 6, Filter: Filter{BudgetBytes: 1, IndexBytes: 2, PageBytes: 3, ResidentBytes: 4, Pages: 5, Resident: 6, Loaded: 7, Dropped: 8},
		},
		Manifest: &Manifest{Announced: 9, Target: 9, Served: 9, FetchedBytes: 1, FetchBytes: 2, FetchRate: 3, PeerBytes: 4, BucketBytes: 5, LastContact: &early},
	}
	two := one
	two.Name, two.LagSeconds, two.LastAppended, two.ScrubEnded, two.CanarySent = "jobs/2", 2, &late, &early, &early
	two.Readiness = Readiness{State: readiness.CatchingUp, Reason: "it is fetched", Progress: &readiness.Progress{Done: 3, Total: 10, Unit: readiness.Increments}}
	sumOfTwo := Readiness{State: readiness.CatchingUp, Reason: "catching up 7 increments: 1 of 2 shards are not ready; jobs/2: it is fetched", Progress: two.Progress}
	two.Queue.Census = &late
	two.Queue.Mapped = &Mapped{Bytes: 20, ResidentRatio: 0.1}
	two.Index.Mapped = &Mapped{Bytes: 7, ResidentRatio: 1}
	two.Index.Flushes, two.Index.Amplification, two.Index.Problem, two.Index.Merges = 3, 6, "full", []Merge{{WrittenBytes: 1}}
	behind := *one.Manifest
	behind.Served, behind.Behind, behind.Error, behind.LastContact = 8, 30, "away", nil
	two.Manifest = &behind
	for _, shards := range [][]Collection{{one, two}, {two, one}} {
		sum := Sum("jobs", shards)
		require.Equal(t, Collection{
			Name: "jobs", Shards: 2, Readiness: sumOfTwo, LagBytes: 20, LagDocuments: 2, LagSeconds: 4, VisibleAfter: 1,
			LastAppended: &late, CanarySent: &early, ScrubEnded: &early, Applied: 14, Swept: 2, Quarantined: 4, Scrubbed: 6,
			Gets: Gets{Found: 2, NotFound: 4, Unavailable: 6, Failed: 8}, Faults: []Fault{{Path: "a"}, {Path: "a"}}, MoreFaults: 10,
			Queue: Queue{Bytes: 200, Documents: 20, Deletes: 2, LiveDocuments: 16, Census: &early, Segments: []Segment{}, Mapped: &Mapped{Bytes: 80, ResidentRatio: 0.4}},
			Index: Index{
				Entries: 20, Tables: []Table{}, Merges: []Merge{{WrittenBytes: 1}}, MemtableBytes: 2, MemtablesWaiting: 4, LogBytes: 6, Flushes: 4, MergesDone: 8,
				Amplification: 5, Delays: 10, Stalls: 12, Problem: "full", Mapped: &Mapped{Bytes: 7, ResidentRatio: 1},
				Filter: Filter{BudgetBytes: 2, IndexBytes: 4, PageBytes: 6, ResidentBytes: 8, Pages: 10, Resident: 12, Loaded: 14, Dropped: 16},
			},
			Manifest: &Manifest{
				Announced: 9, Target: 9, Served: 8, FetchedBytes: 2, FetchBytes: 4, FetchRate: 6, PeerBytes: 8, BucketBytes: 10, Behind: 30, Error: "away",
			},
		}, sum)
	}
	require.Equal(t, "catching up 14 increments: 2 of 2 shards are not ready; jobs/2: it is fetched", Sum("jobs", []Collection{two, two}).Reason)
	ready := Sum("jobs", []Collection{one})
	require.True(t, ready.Ready)
	require.Empty(t, ready.Reason)
}

// The page shows a collection of several shards once; its shards are in the JSON.
func TestPageShowsSumOfShards(t *testing.T) {
	shards := []Collection{{Name: "cvs/1", Readiness: Readiness{Ready: true}, Queue: Queue{Documents: 1000}}, {Name: "cvs/2", Readiness: Readiness{Ready: true}, Queue: Queue{Documents: 234}}}
	status := Status{Columns: []Column{{Collection: "cvs"}}, Collections: []Collection{Sum("cvs", shards)}, Shards: shards}
	_, server := newTestPage(t, &fakeDaemon{status: status})
	_, _, body := get(t, server.URL)
	require.Contains(t, body, "<dt>shards here</dt><dd>2</dd>")
	require.Contains(t, body, "<dd>1,234</dd>")
	for _, unwanted := range []string{"cvs/1", "indexed up to", "none has arrived", "all is in memory", "No table has a filter"} {
		require.NotContains(t, body, unwanted)
	}
	require.Contains(t, body, "<select name=\"collection\"><option>cvs</option></select>")
	_, _, body = get(t, server.URL+"/api/v1/status")
	require.Contains(t, body, `"cvs/1"`)
	http.DefaultClient.CloseIdleConnections()
}
