package livepage

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"docstore/docservice/explain"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeDaemon is a Source with values set by a test.
type fakeDaemon struct {
	mu     sync.Mutex
	status Status
	sample Sample
	asked  int

	diagnostics Diagnostics
	secretive   bool // does not disclose them

	searches int // for versions
}

func (d *fakeDaemon) Diagnostics() Diagnostics { return d.diagnostics }

func (d *fakeDaemon) Discloses(context.Context) bool { return !d.secretive }

func (d *fakeDaemon) Status() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	status := d.status
	status.Time = time.Now()
	return status
}

func (d *fakeDaemon) Sample() Sample {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sample
}

func (d *fakeDaemon) LookUp(_ context.Context, collection, id string, versions bool) LookUp {
	found := LookUp{Collection: collection, ID: id, VersionsAsked: versions}
	if id == "missing" {
		found.Problem = "not found"
		return found
	}
	found.Found, found.Address, found.Document = true, "3/4096/7", `{"text":"<script>alert(1)</script>"}`
	if versions {
		d.mu.Lock()
		d.searches++
		d.mu.Unlock()
		found.Versions = []Version{{Address: "2/64/1", Appended: time.Unix(1_700_000_000, 0), Deleted: true}, {Address: "2/64/2", Read: true, Bytes: 9, Document: "<i>", Cut: true}}
		found.OlderVersions, found.VersionsProblem = 1234, "too late"
	}
	return found
}

func (d *fakeDaemon) Explain(_ context.Context, collection, id string, history bool) explain.Report {
	if history {
		d.mu.Lock()
		d.searches++
		d.mu.Unlock()
	}
	facts := &explain.Facts{Version: "v1", Answer: explain.Found, Entry: &explain.Entry{}, Ready: true, Faults: []string{"3.seg <bad>"}}
	return explain.Explain(explain.Question{Collection: collection, ID: id, Servers: []explain.Server{{Address: "here:1", Facts: facts}}})
}

// Browse lists the ids a, b/c and \xff.
func (d *fakeDaemon) Browse(_ context.Context, collection, prefix, after string) Listing {
	d.mu.Lock()
	d.searches++
	d.mu.Unlock()
	list := Listing{Collection: collection, Prefix: prefix, Status: http.StatusOK}
	if collection == "none" {
		list.Problem, list.Status = "no such collection", http.StatusNotFound
		return list
	}
	for _, id := range []string{"a", "b/c&d", "b\xff"} {
		if strings.HasPrefix(id, prefix) && id > after {
			list.IDs = append(list.IDs, id)
		}
	}
	if len(list.IDs) > 1 {
		list.IDs, list.More = list.IDs[:1], true
	}
	return list
}

// someStatus returns a status with all parts.
func someStatus() Status {
	census := time.Now()
	return Status{
		Host: "machine <7>", Version: "v1", Started: time.Now().Add(-time.Hour), Ready: true,
		Columns: []Column{{Collection: "cvs", Column: "c-7", Row: 2, Zone: "z1", Epoch: 55, Serving: 20, Fetching: 1, Moved: 3, Failed: 4, Readiness: Readiness{Reason: "shard 9 is fetched"}}},
		Memory:  Memory{BudgetBytes: 1000, MemtableBytes: 500, FilterBytes: 250},
		Collections: []Collection{{
			Name: "jobs", Readiness: Readiness{Ready: true}, Position: "3/4096/0",
			Faults: []Fault{{Segment: 2, Offset: 77, Reason: "a wrong checksum", Path: "/srv/2.seg", Since: time.Now()}},
			Queue: Queue{Documents: 12345, Census: &census, Segments: []Segment{
				{First: 1, Last: 2, Generation: 1, Sealed: true, Codec: "zstd", StoredBytes: 100, LiveBytes: 50, Counted: true},
				{First: 3, Last: 3, Codec: "s2", StoredBytes: 10, LiveBytes: 10, Counted: true},
			}},
			Index: Index{
				Tables: []Table{{Number: 42, Entries: 999, Bytes: 5000, Probes: 10, Spared: 5, Merging: true}},
				Merges: []Merge{{Tables: []uint64{42, 41}, InputBytes: 200, WrittenBytes: 50, Begun: time.Now()}},
				Filter: Filter{BudgetBytes: 60, IndexBytes: 10, PageBytes: 100, Tables: []FilterPages{{42, []FilterPage{
					{Bytes: 50, Resident: true, Usefulness: 9}, {Bytes: 50},
				}}}},
			},
			Manifest: &Manifest{
				Announced: 7, Target: 6, Served: 5, PinnedBy: "anna <a>", PinReason: "typo", Behind: 3, Held: "too many deletes",
				FetchedBytes: 1000, FetchBytes: 4000, FetchRate: 2000, PeerBytes: 600, BucketBytes: 400, Error: "the store is away",
			},
		}},
		Boxcar: Boxcar{Address: "127.0.0.1:7070", LowestFree: 2, Refused: 5, RefusedBy: map[string]uint64{"client_rate": 5}, Leases: 9, Slots: []Slot{
			{Number: 0, Client: "frontend & co", Address: "127.0.0.1:5", Requests: 11, Errors: 3, Identity: "spiffe://fe", Busy: true},
			{Number: 1, Client: "other", Address: "127.0.0.1:6"},
		}},
	}
}

// admitAll is for Page.Handle.
func admitAll(next http.HandlerFunc) http.HandlerFunc { return next }

func newTestPage(t *testing.T, d *fakeDaemon) (*Page, *httptest.Server) {
	t.Helper()
	p := New(d, true, slog.New(slog.DiscardHandler))
	mux := http.NewServeMux()
	p.Handle(mux, admitAll)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return p, server
}

func get(t *testing.T, url string) (status int, header http.Header, text string) {
	t.Helper()
	response, err := http.Get(url)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, response.Header, string(body)
}

func TestPageShowsStatus(t *testing.T) {
	_, server := newTestPage(t, &fakeDaemon{status: someStatus()})
	status, header, body := get(t, server.URL)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, header.Get("Content-Security-Policy"), "default-src 'none'")
	for _, want := range []string{
		"client rate 5", "frontend &amp; co as spiffe://fe", "11 requests, 3 errors",
		"machine &lt;7&gt;", "ready", "up 1 h 0 min", "12,345", "1-2.1", "3 <i>open</i>", "zstd", "50.0 %",
		"a wrong checksum", "/srv/2.seg", "merging 2 tables", "25.0 %", "<td class=\"n\">42</td>", "memtables 500 B",
		"6, pinned by anna &lt;a&gt; (typo), not served for 3.0 s", "1000 B of 3.9 KiB, 2 KiB/s", "400 B from the store, 600 B from peers",
		"the store is away", "too many deletes",
		"cvs: column c-7, row 2 in zone z1. 20 shards served, 1 being fetched, 3 moved and kept, 4 failed.", "epoch 55", "cvs: shard 9 is fetched",
		"frontend &amp; co", "127.0.0.1:5", "/?client=frontend%20%26%20co#h-boxcar",
	} {
		assert.Contains(t, body, want)
	}
	require.NotContains(t, body, "http://", "no external resources")

	_, _, body = get(t, server.URL+"/?client=other")
	require.Contains(t, body, "127.0.0.1:6")
	require.NotContains(t, body, "127.0.0.1:5")
	require.Contains(t, body, `data-live="/live?client=other"`)

	for name, contentType := range map[string]string{"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"} {
		status, header, _ := get(t, server.URL+"/assets/"+name)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, header.Get("Content-Type"), contentType)
	}
}

// TestEmptyPage shows a daemon that has just started.
func TestEmptyPage(t *testing.T) {
	_, server := newTestPage(t, &fakeDaemon{status: Status{Collections: []Collection{{Name: "jobs", Readiness: Readiness{Reason: "the queue is being read"}}}}})
	status, _, body := get(t, server.URL)
	require.Equal(t, http.StatusOK, status)
	for _, want := range []string{"not ready", "the queue is being read", "none has arrived", "No client holds a slot", "No table has a filter yet"} {
		assert.Contains(t, body, want)
	}
}

// A row of each collection has its state in words.
func TestCollections(t *testing.T) {
	now := time.Now()
	at := func(c Collection) Collection {
		c.Name, c.Queue.Bytes, c.Queue.Documents, c.LastAppended = "jobs", 1<<20, 5, &now
		return c
	}
	for want, c := range map[string]Collection{
		"not ready: the queue is being read": {Name: "jobs", Readiness: Readiness{Reason: "the queue is being read"}},
		`class="state warn-text">not ready<`: at(Collection{}),
		"served and up to date":              at(Collection{Readiness: Readiness{Ready: true}}),
		"1 MiB</td>":                         at(Collection{Readiness: Readiness{Ready: true}}),
		"being counted":                      at(Collection{Readiness: Readiness{Ready: true}}),
		"counted 0 s ago\">4,711</span>":     at(Collection{Readiness: Readiness{Ready: true}, Queue: Queue{Census: &now, LiveDocuments: 4711}}),
		"served; 2 KiB are not indexed yet":  at(Collection{Readiness: Readiness{Ready: true}, LagBytes: 2048}),
		"served; faults: 3":                  at(Collection{Readiness: Readiness{Ready: true}, Faults: []Fault{{}}, MoreFaults: 2}),
		"served; the index has failed":       at(Collection{Readiness: Readiness{Ready: true}, Index: Index{Problem: "disk"}}),
	} {
		var row strings.Builder
		require.NoError(t, templates.ExecuteTemplate(&row, "collections", view{Status: Status{Time: now, Collections: []Collection{c}}}))
		assert.Contains(t, row.String(), want)
		assert.NotContains(t, row.String(), "/browse", "documents are not served")
	}
}

// Values that were 0 for five minutes have no chart.
func TestNoEmptyCharts(t *testing.T) {
	v := view{Status: someStatus(), Samples: []Sample{{Time: time.Unix(1, 0)}, {Time: time.Unix(2, 0), Boxcar: BoxcarSample{Leases: 5}}}}
	charts := figures(v)
	require.Len(t, charts, 1)
	require.Contains(t, charts[0], "Slots")
}

// TestOneStatusServesAll: for any number of viewers the status is computed once per second.
func TestOneStatusServesAll(t *testing.T) {
	d := &fakeDaemon{status: someStatus()}
	p, _ := newTestPage(t, d)
	first := p.view()
	for range 100 {
		if v := p.view(); v.Time != first.Time {
			require.GreaterOrEqual(t, v.Time.Sub(first.Time), statusLife)
			return // the machine was slow
		}
	}
	require.Equal(t, 1, d.asked)
}

// Cold reads come from the samples; without them, and without mapped files, the status has
// no such fields, and neither has the page.
func TestColdReadsAndResidency(t *testing.T) {
	d := &fakeDaemon{status: someStatus()}
	p, server := newTestPage(t, d)
	for i := range uint64(3) {
		p.recorder.add(Sample{Time: time.Unix(int64(i), 0), Collections: []CollectionSample{{Name: "jobs", ColdQueue: histogram(3*i, i, 0)}}})
	}
	d.status.Collections[0].Queue.Mapped = &Mapped{Bytes: 1 << 30, ResidentRatio: 0.125}
	_, _, body := get(t, server.URL)
	require.Contains(t, body, "<dt>in memory</dt><dd>12.5 % of 1 GiB mapped</dd>")
	require.Regexp(t, `<dt>cold reads</dt><dd>4/s, p50 [78]\d\d µs, p99 9.\d ms; 8 in all</dd>`, body)
	require.Equal(t, 1, strings.Count(body, "<dt>in memory</dt>"), "the index is not measured")
	require.Equal(t, 1, strings.Count(body, "<dt>cold reads</dt>"))
	_, _, body = get(t, server.URL+"/api/v1/status")
	var status struct {
		Collections []struct{ Queue, Index map[string]json.RawMessage }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &status))
	require.JSONEq(t, `{"bytes":1073741824,"resident_ratio":0.125}`, string(status.Collections[0].Queue["mapped"]))
	var cold map[string]float64
	require.NoError(t, json.Unmarshal(status.Collections[0].Queue["cold_reads"], &cold))
	require.InDelta(t, 8, cold["total"], 0)
	require.InDelta(t, 4, cold["per_second"], 1e-9)
	require.InDelta(t, 0.8e-3, cold["p50_seconds"], 0.1e-3)
	require.InDelta(t, 9.1e-3, cold["p99_seconds"], 0.9e-3)
	require.NotContains(t, status.Collections[0].Index, "mapped")
	require.NotContains(t, status.Collections[0].Index, "cold_reads")
	http.DefaultClient.CloseIdleConnections()
}

func TestStatusAsJSON(t *testing.T) {
	_, server := newTestPage(t, &fakeDaemon{status: someStatus()})
	_, header, body := get(t, server.URL+"/api/v1/status")
	require.Equal(t, "application/json", header.Get("Content-Type"))
	var status Status
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&status))
	require.Equal(t, "machine <7>", status.Host)
	require.Equal(t, uint64(42), status.Collections[0].Index.Tables[0].Number)
	require.NotContains(t, body, "null", "lists are empty, not absent")
}

func TestLookUp(t *testing.T) {
	_, server := newTestPage(t, &fakeDaemon{status: someStatus()})
	code, _, body := get(t, server.URL+"/lookup?collection=jobs&id=a%2Fb")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "3/4096/7")
	require.Contains(t, body, "&lt;script&gt;")
	require.NotContains(t, body, "<script>alert")
	require.Contains(t, body, "/lookup?collection=jobs&amp;id=a%2fb&amp;versions=1")
	_, _, body = get(t, server.URL+"/lookup?collection=jobs&id=a&versions=1")
	require.Contains(t, body, "2/64/1")
	for _, want := range []string{"deleted", "&lt;i&gt;\n…", "1,234 older versions", "too late"} {
		require.Contains(t, body, want)
	}
	code, _, body = get(t, server.URL+"/lookup?collection=jobs&id=missing")
	require.Equal(t, http.StatusNotFound, code)
	require.Contains(t, body, "not found")

	closed := New(&fakeDaemon{status: someStatus()}, false, slog.New(slog.DiscardHandler))
	mux := http.NewServeMux()
	closed.Handle(mux, admitAll)
	recorder := httptest.NewRecorder()
	mux.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/lookup?collection=jobs&id=a", nil))
	require.Equal(t, http.StatusForbidden, recorder.Code)
	recorder = httptest.NewRecorder()
	mux.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/", nil))
	require.NotContains(t, recorder.Body.String(), "/lookup")
}

func TestExplain(t *testing.T) {
	d := &fakeDaemon{status: someStatus()}
	_, server := newTestPage(t, d)
	code, _, body := get(t, server.URL+"/explain?collection=jobs&id=a%2Fb")
	require.Equal(t, http.StatusOK, code)
	for _, want := range []string{"<p>served: version 0/0/0 is served.</p>", "<dt>fault</dt><dd>3.seg &lt;bad&gt;</dd>", `<a href="/lookup?collection=jobs&amp;id=a%2fb">`} {
		require.Contains(t, body, want)
	}
	response, err := http.Head(server.URL + "/explain?collection=jobs&id=a")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, 1, d.searches, "HEAD does not search")

	closed, mux := New(d, false, slog.New(slog.DiscardHandler)), http.NewServeMux()
	closed.Handle(mux, admitAll)
	recorder := httptest.NewRecorder()
	mux.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/explain?collection=jobs&id=a", nil))
	require.Equal(t, http.StatusForbidden, recorder.Code)
}

func TestBrowse(t *testing.T) {
	_, server := newTestPage(t, &fakeDaemon{status: someStatus()})
	code, header, body := get(t, server.URL+"/browse?collection=jobs&id=b")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, header.Get("Content-Security-Policy"), "default-src 'none'")
	require.Contains(t, body, `<option selected>jobs</option>`)
	require.Contains(t, body, `value="b"`)
	require.Contains(t, body, `<a href="/lookup?collection=jobs&amp;id=b%2fc%26d">b/c&amp;d</a>`)
	require.NotContains(t, body, "Previous page")
	next := linkTo(t, body, "Next page")
	require.Equal(t, "/browse?after=b%2Fc%26d&back=&collection=jobs&prefix=b", next)
	_, _, body = get(t, server.URL+next)
	require.Contains(t, body, `id=b%ff">&#34;b\xff&#34;</a>`, "an id that is not text")
	require.NotContains(t, body, "Next page")
	require.Equal(t, "/browse?collection=jobs&prefix=b", linkTo(t, body, "Previous page"))
	require.Equal(t, "/browse?collection=jobs&prefix=b", linkTo(t, body, "First page"))
	_, _, body = get(t, server.URL+"/browse?collection=jobs&prefix=x")
	require.Contains(t, body, "none: <a")
	code, _, body = get(t, server.URL+"/browse?collection=none")
	require.Equal(t, http.StatusNotFound, code)
	require.Contains(t, body, "no such collection")

	closed := New(&fakeDaemon{status: someStatus()}, false, slog.New(slog.DiscardHandler))
	mux := http.NewServeMux()
	closed.Handle(mux, admitAll)
	recorder := httptest.NewRecorder()
	mux.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/browse?collection=jobs", nil))
	require.Equal(t, http.StatusForbidden, recorder.Code)
	require.Contains(t, recorder.Body.String(), "--http-lookup")
}

// linkTo returns the URL of the link with a text.
func linkTo(t *testing.T, body, text string) string {
	t.Helper()
	before, _, found := strings.Cut(body, `">`+text+"<")
	require.True(t, found, "no link %s", text)
	return html.UnescapeString(before[strings.LastIndexByte(before, '"')+1:])
}

// Each page of a listing leads to the next one, and back to the first.
func TestBrowseBackAndForth(t *testing.T) {
	forth := []Listing{{Collection: "jobs", IDs: []string{"0 &"}}}
	for i := range 2 * maxBack {
		u, err := url.Parse(forth[i].Next())
		require.NoError(t, err)
		query := u.Query()
		require.LessOrEqual(t, len(query["back"]), maxBack)
		forth = append(forth, Listing{Collection: "jobs", IDs: []string{fmt.Sprint(i+1, " &")}, after: query.Get("after"), back: query["back"]})
	}
	last := len(forth) - 1
	at := forth[last]
	for i := range maxBack {
		u, err := url.Parse(at.Previous())
		require.NoError(t, err)
		at = Listing{Collection: "jobs", after: u.Query().Get("after"), back: u.Query()["back"]}
		require.Equal(t, forth[last-1-i].after, at.after)
	}
	require.Empty(t, at.Previous(), "further pages are forgotten")
	require.Equal(t, "/browse?collection=jobs", at.First())
	require.Empty(t, forth[0].First())
}

// The page shows log and settings, unless the caller may not see them.
func TestDiagnostics(t *testing.T) {
	d := &fakeDaemon{status: someStatus()}
	_, server := newTestPage(t, d)
	_, _, body := get(t, server.URL)
	require.Contains(t, body, "none yet")
	var log strings.Builder
	log.WriteString(`{"time":"2026-01-02T03:04:05.678Z","level":"ERROR","msg":"a <fault>","segment":7,"path":"/srv/q"}` + "\n")
	for i := range 2 * shownLines {
		fmt.Fprintf(&log, `{"time":"2026-01-02T03:04:06.1Z","level":"INFO","msg":"line %d, no WARNING","took":1.50}`+"\n", i)
	}
	d.diagnostics = Diagnostics{Log: log.String(), Settings: "data: /srv/<index> # a flag\n"}
	p, server := newTestPage(t, d)
	_, _, body = get(t, server.URL)
	require.Contains(t, body, `<time>2026-01-02 03:04:05</time> <b class="bad-text">ERROR</b> a &lt;fault&gt; <small>path=/srv/q segment=7</small>`)
	require.Equal(t, shownLines, strings.Count(body, "no WARNING <small>took=1.50</small>"))
	require.Contains(t, body, "line 39,")
	require.NotContains(t, body, "line 19,")
	require.Contains(t, body, "data: /srv/&lt;index&gt; # a flag")

	d.secretive = true
	_, _, body = get(t, server.URL)
	require.NotContains(t, body, "fault&gt;")
	require.NotContains(t, body, "/srv/&lt;index")
	events, err := events(templates, sections, p.viewFor(httptest.NewRequest(http.MethodGet, "/live", nil)), map[string]string{})
	require.NoError(t, err)
	require.NotContains(t, string(events), "&lt;index")
	http.DefaultClient.CloseIdleConnections()
}

func TestParseLogLine(t *testing.T) {
	for text, want := range map[string]logLine{
		"15:04:05 WARN it is full disk=1": {Time: "15:04:05", Level: "WARN", Message: "it is full disk=1"},
		"15:04:05 serving http=127.0.0.1": {Time: "15:04:05", Message: "serving http=127.0.0.1"},
		"panic":                           {Message: "panic"},
		"a panic of 3":                    {Message: "a panic of 3"},
		`{"time":"2026-01-02T03:04:05Z","level":"INFO","msg":"m","a":{"b":[1]},"c":"\u00fc"}`: {Time: "2026-01-02T03:04:05Z", Level: "INFO", Message: "m", Details: `a={"b":[1]} c=ü`},
	} {
		require.Equal(t, want, parseLogLine(text))
	}
}

// The guides come with the daemon.
func TestGuides(t *testing.T) {
	_, server := newTestPage(t, &fakeDaemon{status: someStatus()})
	_, _, page := get(t, server.URL)
	links := regexp.MustCompile(`href="(/guides/[^"]*)"`).FindAllStringSubmatch(page, -1)
	require.NotEmpty(t, links)
	for _, link := range links {
		status, header, body := get(t, server.URL+link[1])
		require.Equal(t, http.StatusOK, status, link[1])
		require.Equal(t, "text/plain; charset=utf-8", header.Get("Content-Type"))
		require.Regexp(t, `^# `, body)
	}
	for _, name := range []string{"none.md", "docs.go", "..%2f..%2fetc%2fpasswd"} {
		status, _, _ := get(t, server.URL+"/guides/"+name)
		require.Equal(t, http.StatusNotFound, status)
	}
	http.DefaultClient.CloseIdleConnections()
}

// Documents are indented if they are JSON, unless indentation would multiply their length.
func TestIndented(t *testing.T) {
	for document, want := range map[string]string{
		`{"b":1.50,"a":["<",{}]}`: "{\n  \"b\": 1.50,\n  \"a\": [\n    \"<\",\n    {}\n  ]\n}",
		`"a [ \" [ b"`:            `"a [ \" [ b"`,
		`{"a":`:                   `{"a":`,
		"plain [text]":            "plain [text]",
		"":                        "",
	} {
		require.Equal(t, want, indented(document))
	}
	deep := strings.Repeat("[", maxIndent+1) + strings.Repeat("]", maxIndent+1)
	require.Equal(t, deep, indented(deep))
	require.NotEqual(t, deep[1:len(deep)-1], indented(deep[1:len(deep)-1]))
}

// readEvent reads server-sent events up to the next one with the name, and returns its
// data.
func readEvent(t *testing.T, lines *bufio.Scanner, name string) string {
	t.Helper()
	event := ""
	var data []string
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "event: "):
			event, data = strings.TrimPrefix(line, "event: "), nil
		case strings.HasPrefix(line, "data: "):
			data = append(data, strings.TrimPrefix(line, "data: "))
		case line == "" && event == name:
			return strings.Join(data, "\n")
		}
	}
	require.Fail(t, "the stream has ended", "%v", lines.Err())
	return ""
}

// TestLive: a viewer gets all sections, and then those that change.
func TestLive(t *testing.T) {
	d := &fakeDaemon{status: someStatus()}
	p, server := newTestPage(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/live?client=other", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for _, name := range sections {
		require.NotContains(t, readEvent(t, lines, name), "127.0.0.1:5", "another client's slot")
	}
	d.mu.Lock()
	d.status.Boxcar.InFlight = 4711
	d.mu.Unlock()
	require.Contains(t, readEvent(t, lines, "boxcar"), "4,711")
	cancel()
	response.Body.Close()
	for viewers := 1; viewers > 0; time.Sleep(time.Millisecond) {
		p.live.mu.Lock()
		viewers = p.live.count
		p.live.mu.Unlock()
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestSectionsAreOnThePage: each section has an element that the script can fill.
func TestSectionsAreOnThePage(t *testing.T) {
	p, server := newTestPage(t, &fakeDaemon{status: someStatus()})
	_, _, body := get(t, server.URL)
	for _, name := range sections {
		require.Contains(t, body, fmt.Sprintf(`id=%q`, name))
	}
	sent := map[string]string{}
	first, err := events(templates, sections, p.view(), sent)
	require.NoError(t, err)
	require.Len(t, sent, len(sections))
	again, err := events(templates, sections, p.view(), sent)
	require.NoError(t, err)
	require.Less(t, len(again), len(first)/2)
	http.DefaultClient.CloseIdleConnections()
}

// A client may have all places until another client wants one.
func TestOneClientDoesNotKeepAllViewers(t *testing.T) {
	p, server := newTestPage(t, &fakeDaemon{status: someStatus()})
	crowd := clientAt("[2001:db8::1]:80")
	var places []*viewer
	for i := range MaxViewers {
		places = append(places, p.live.addViewer(clientAt(fmt.Sprintf("[2001:db8::%x]:%d", i, 1024+i)))) // one network
	}
	require.Nil(t, p.live.addViewer(crowd))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/live", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request) // of 127.0.0.1
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	<-places[0].displaced // the oldest
	require.Nil(t, p.live.addViewer(crowd), "it does not come back")

	for range MaxViewers/2 - 1 {
		require.NotNil(t, p.live.addViewer(clientAt("127.0.0.1:80")))
	}
	status, _, body := get(t, server.URL+"/live")
	require.Equal(t, http.StatusServiceUnavailable, status, "no client has more places")
	require.Contains(t, body, "64 viewers")
	p.live.removeViewer(p.live.viewers[crowd][0])
	for range 2 {
		require.NotNil(t, p.live.addViewer(clientAt("10.0.0.2:80")))
	}
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err, "the oldest viewer of a client with most is displaced")
	require.Equal(t, MaxViewers, p.live.count)

	for _, v := range places {
		p.live.removeViewer(v) // also those that were displaced
	}
	for client, viewers := range p.live.viewers {
		for _, v := range slices.Clone(viewers) {
			require.Equal(t, client, v.client)
			p.live.removeViewer(v)
		}
	}
	require.Zero(t, p.live.count)
	require.Empty(t, p.live.viewers)
	http.DefaultClient.CloseIdleConnections()
}

// HEAD takes no place among the viewers, and does not search the queue.
func TestHeadDoesNoWork(t *testing.T) {
	d := &fakeDaemon{status: someStatus()}
	p, server := newTestPage(t, d)
	for range MaxViewers {
		require.NotNil(t, p.live.addViewer(clientAt("127.0.0.1:80")))
	}
	for path, contentType := range map[string]string{"/live": "text/event-stream", "/lookup?collection=jobs&id=a&versions=1": "text/html; charset=utf-8", "/browse?collection=jobs": "text/html; charset=utf-8"} {
		response, err := http.Head(server.URL + path)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode)
		require.Equal(t, contentType, response.Header.Get("Content-Type"))
	}
	require.Zero(t, d.searches)
	http.DefaultClient.CloseIdleConnections()
}

// Values that are not known, such as live bytes before a count, are not shown as 0.
func TestUnknownValuesAreNotZero(t *testing.T) {
	status := someStatus()
	jobs := &status.Collections[0]
	jobs.Queue.Segments = append(jobs.Queue.Segments, Segment{First: 4, Last: 4, Codec: "s2", StoredBytes: 10}) // has arrived since
	jobs.VisibleAfter = 0
	var page bytes.Buffer
	require.NoError(t, templates.ExecuteTemplate(&page, "queues", view{Status: status}))
	require.Contains(t, page.String(), "<dd>not measured yet")
	require.Contains(t, page.String(), `<td class="n minor">not counted</td>`)
	require.Contains(t, page.String(), "50.0 %")
	require.NotContains(t, page.String(), ">0.0 %")

	jobs.Queue.Census = nil // nothing was counted
	for i := range jobs.Queue.Segments {
		jobs.Queue.Segments[i].Counted, jobs.Queue.Segments[i].LiveBytes = false, 0
	}
	page.Reset()
	require.NoError(t, templates.ExecuteTemplate(&page, "queues", view{Status: status}))
	require.Contains(t, page.String(), "live bytes are being counted")
	require.NotContains(t, page.String(), ">0.0 %")
	require.NotRegexp(t, `class="dead" x="[0-9.]+" width="[1-9]`, page.String(), "nothing is known to be dead")
}
