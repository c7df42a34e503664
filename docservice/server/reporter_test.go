package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/docservice/collection"
	"docstore/docservice/server/livepage"
	"docstore/internal/servertest"
)

func statusOf(t *testing.T, d *Server) (status livepage.Status) {
	t.Helper()
	r := servertest.Get(d.http.Handler, "/api/v1/status")
	require.Equal(t, http.StatusOK, r.Code)
	require.NoError(t, json.Unmarshal(r.Body.Bytes(), &status))
	return status
}

// TestStatusOfADaemon reads the status of a daemon that has served requests.
func TestStatusOfADaemon(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`, "b", `{"id":"b"}`, "a", `{"id":"a","again":true}`, "b", "")
	d, _ := startTestDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	require.Equal(t, http.StatusOK, servertest.Get(d.http.Handler, "/documents/jobs/a").Code)
	require.Equal(t, http.StatusNotFound, servertest.Get(d.http.Handler, "/documents/jobs/b").Code)

	var status livepage.Status
	servertest.Until(t.Context(), func() bool { // live bytes are counted on request
		status = statusOf(t, d)
		return status.Collections[0].Queue.Census != nil
	})
	require.True(t, status.Ready)
	require.EqualValues(t, 44<<20, status.Memory.BudgetBytes)
	require.EqualValues(t, 16<<20, status.Memory.RequestBudget)
	require.Positive(t, status.Memory.GoHeapBytes)
	require.Equal(t, d.BoxcarAddress(), status.Boxcar.Address)
	jobs := status.Collections[0]
	require.Equal(t, "jobs", jobs.Name)
	require.Equal(t, livepage.Gets{Found: 1, NotFound: 1}, jobs.Gets)
	require.EqualValues(t, 4, jobs.Applied)
	require.Len(t, jobs.Queue.Segments, 1)
	require.EqualValues(t, 1, jobs.Queue.LiveDocuments)
	segment := jobs.Queue.Segments[0]
	require.EqualValues(t, 3, segment.Documents)
	require.EqualValues(t, 1, segment.Deletes)
	require.EqualValues(t, 1, segment.LiveDocuments)
	require.True(t, segment.Counted)
	require.Positive(t, segment.LiveBytes)
	require.Less(t, segment.LiveBytes, segment.StoredBytes)
	require.Positive(t, jobs.Index.MemtableBytes)
	requireResidency(t, jobs)

	// A segment that arrives after the census is not shown as dead.
	servertest.Fill(t, queueDir, "c", `{"id":"c"}`)
	servertest.Until(t.Context(), func() bool { return len(statusOf(t, d).Collections[0].Queue.Segments) == 2 })
	require.False(t, statusOf(t, d).Collections[0].Queue.Segments[1].Counted)

	page := servertest.Get(d.http.Handler, "/")
	require.Equal(t, http.StatusOK, page.Code)
	require.Contains(t, page.Body.String(), d.BoxcarAddress())
}

// A collection that is closed, as a shard that has moved away, is not kept for the status.
func TestStatusForgetsClosedCollections(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	d, _ := startTestDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	moved, err := collection.Open("moved", queueDir, t.TempDir(), nil)
	require.NoError(t, err)
	d.reporter.queueReport(moved)
	require.NoError(t, moved.Close())
	statusOf(t, d)
	d.reporter.mu.Lock()
	defer d.reporter.mu.Unlock()
	require.NotContains(t, d.reporter.queues, moved)
	require.Len(t, d.reporter.queues, 1)
}

// requireResidency requires the residency of a collection whose index has no table, or nothing
// where the system does not tell.
func requireResidency(t *testing.T, c livepage.Collection) {
	require.Nil(t, c.Index.Mapped, "there is no table")
	if runtime.GOOS != "linux" {
		require.Nil(t, c.Queue.Mapped)
		require.Nil(t, c.Queue.ColdReads)
		require.Nil(t, c.Index.ColdReads)
		return
	}
	require.NotNil(t, c.Queue.Mapped)
	require.Positive(t, c.Queue.Mapped.Bytes)
	require.LessOrEqual(t, c.Queue.Mapped.Bytes, c.Queue.Bytes)
	require.InDelta(t, 0.5, c.Queue.Mapped.ResidentRatio, 0.5)
	require.NotNil(t, c.Queue.ColdReads)
	require.NotNil(t, c.Index.ColdReads)
}

// TestLatenciesOfADaemon compares samples with the measured latencies.
func TestLatenciesOfADaemon(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	d, _ := startTestDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	m := newMetrics(d)
	seconds := m.timing("http", "Get")
	seconds.Observe(15e-6) // in the second bucket: up to 20 us
	seconds.Observe(1000)  // beyond the last
	last := func() livepage.MethodSample {
		samples := m.latencies()
		return samples[len(samples)-1]
	}
	require.Equal(t, "http", last().Listener)
	counts := last().Latencies.Counts
	require.EqualValues(t, 1, counts[1])
	require.EqualValues(t, 1, counts[len(counts)-1])
	sum := uint64(0)
	for _, n := range counts {
		sum += n
	}
	require.EqualValues(t, 2, sum)
	seconds.Observe(15e-6)
	require.EqualValues(t, 1, counts[1], "the earlier sample does not change")
	require.EqualValues(t, 2, last().Latencies.Counts[1])
}

func TestLookUpInADaemon(t *testing.T) {
	queueDir := t.TempDir()
	long := strings.Repeat("ü", shownDocumentBytes)
	servertest.Fill(t, queueDir, "a/ü", `{"n":1}`, "a/ü", `{"n":2}`, "long", long, "binary", "\xff\xfe", "gone", "x", "gone", "")
	d, _ := startTestDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	lookUp := func(collection, id, more string) (int, string) {
		r := servertest.Get(d.http.Handler, "/lookup?collection="+collection+"&id="+url.QueryEscape(id)+more)
		return r.Code, r.Body.String()
	}
	status, body := lookUp("jobs", "a/ü", "&versions=1")
	require.Equal(t, http.StatusOK, status)
	for _, want := range []string{"{\n  &#34;n&#34;: 2\n}", "<dd>s2</dd>", "1/", "7 B"} {
		require.Contains(t, body, want)
	}
	require.Equal(t, 2, strings.Count(body, "<td>document<details>"))
	require.Contains(t, body, "{\n  &#34;n&#34;: 1\n}", "the content of the older version")
	status, body = lookUp("jobs", "long", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "ü\n…")
	_, body = lookUp("jobs", "binary", "")
	require.Contains(t, body, "The document is not text.")
	status, body = lookUp("jobs", "gone", "&versions=1")
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, body, "not found")
	require.Contains(t, body, "deleted")
	status, body = lookUp("resumes", "a", "")
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, body, "No such collection")
}

// The page of an id states its verdict on this server.
func TestExplainInADaemon(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", "one", "a", "two", "gone", "x", "gone", "")
	d, _ := startTestDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	for id, want := range map[string]string{
		"a":     "<p>served: version 1/",
		"gone":  "<p>deleted: the id was deleted at 1/",
		"never": "<p>absent: no version of the id is in the collection up to position 1/",
		"":      "<p>invalid_id: ",
	} {
		r := servertest.Get(d.http.Handler, "/explain?collection=jobs&id="+id)
		require.Equal(t, http.StatusOK, r.Code)
		require.Contains(t, r.Body.String(), want)
	}
	body := servertest.Get(d.http.Handler, "/explain?collection=resumes&id=a").Body.String()
	require.Contains(t, body, "no_collection: the server has no collection &#34;resumes&#34;")
	body = servertest.Get(d.http.Handler, "/lookup?collection=jobs&id=a").Body.String()
	require.Contains(t, body, `<a href="/explain?collection=jobs&amp;id=a">`)

	done, ok := d.reporter.search()
	require.True(t, ok)
	defer done()
	facts := d.reporter.facts(t.Context(), "jobs", []byte("gone"), true)
	require.Equal(t, searchBusy, facts.History.Problem)
	require.Nil(t, d.reporter.facts(t.Context(), "jobs", []byte("gone"), false).History)
	_, err := d.answerExplain(t.Context(), "", []byte("{"), nil)
	require.Equal(t, boxcarrpc.CodeInvalidArgument, boxcarrpc.CodeOf(err))
}

// The pages of a listing have all ids with the prefix, in their order.
func TestBrowseByPrefix(t *testing.T) {
	queueDir := t.TempDir()
	pairs := []string{"other", "{}", "jobs", "{}", "job-001", ""}
	for i := range 2*shownIDs + 7 {
		pairs = append(pairs, fmt.Sprintf("job-%03d", i), "{}")
	}
	servertest.Fill(t, queueDir, append(pairs, "job-000", "")...)
	d, _ := startTestDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	r, after, pages := newReporter(d), "", 0
	var ids []string
	for more := true; more; pages++ {
		page := r.Browse(t.Context(), "jobs", "job-", after)
		require.Equal(t, http.StatusOK, page.Status, page.Problem)
		ids, more, after = append(ids, page.IDs...), page.More, page.Last()
	}
	require.Equal(t, 3, pages)
	require.Len(t, ids, 2*shownIDs+6)
	require.True(t, slices.IsSorted(ids))
	require.Equal(t, "job-001", ids[0], "a deleted id is not listed")

	none := r.Browse(t.Context(), "none", "", "")
	require.Equal(t, http.StatusNotFound, none.Status)
	require.Equal(t, `no collection "none"`, none.Problem)
	require.NoError(t, d.Collections()[0].Close())
	closed := r.Browse(t.Context(), "jobs", "", "")
	require.Equal(t, http.StatusServiceUnavailable, closed.Status)
	require.NotEmpty(t, closed.Problem)
}

// The page lists the newest versions, and the contents of the newest of them.
func TestVersionsAreBounded(t *testing.T) {
	queueDir := t.TempDir()
	var pairs []string
	n := 2*shownVersions + 30
	for i := range n {
		pairs = append(pairs, "a", fmt.Sprintf(`{"n":%d}`, i))
	}
	pairs = append(pairs, "a", "", "a", strings.Repeat("x", 2*shownContentBytes))
	servertest.Fill(t, queueDir, pairs...)
	d, _ := startTestDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	r := newReporter(d)
	found := r.LookUp(t.Context(), "jobs", "a", true)
	require.Len(t, found.Versions, shownVersions)
	require.Equal(t, n+2-shownVersions, found.OlderVersions)
	require.Empty(t, found.VersionsProblem)
	last := found.Versions[shownVersions-1]
	require.True(t, last.Read && last.Cut)
	require.Equal(t, shownContentBytes-1, len(last.Document))
	require.Equal(t, 2*shownContentBytes, last.Bytes)
	require.True(t, found.Versions[shownVersions-2].Deleted)
	require.Equal(t, fmt.Sprintf(`{"n":%d}`, n-1), found.Versions[shownVersions-3].Document)
	require.True(t, found.Versions[shownVersions-shownContents].Read)
	require.False(t, found.Versions[shownVersions-shownContents-1].Read)

	r.searching <- struct{}{}
	found = r.LookUp(t.Context(), "jobs", "a", true)
	require.Empty(t, found.Versions)
	require.Contains(t, found.VersionsProblem, "Another search")
	<-r.searching
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Contains(t, r.LookUp(ctx, "jobs", "a", true).VersionsProblem, "not read to its end")
}
