package server

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"os"
	runtimemetrics "runtime/metrics"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"docstore/boxcarrpc/credentials"
	"docstore/docservice"
	"docstore/docservice/collection"
	"docstore/docservice/server/internal/httpapi"
	"docstore/docservice/server/livepage"
	"docstore/internal/buildinfo"
	"docstore/lsm"
	"docstore/queue"
)

const (
	// segmentsLife is how long the description of a queue's segments and the residency are
	// cached. Making the description reads the footer of each segment; the residency takes a
	// thousand system calls.
	segmentsLife = 10 * time.Second
	// Live bytes are counted on request, if the last count is older than censusLife and
	// than censusRest times its duration.
	censusLife = 5 * time.Minute
	censusRest = 20
	// shownDocumentBytes limits the part of a document that the page shows.
	shownDocumentBytes = 256 << 10
	// Limits of the search for versions of an id.
	versionsTime  = 10 * time.Second
	shownVersions = 100 // the newest
	// Contents of the newest versions, each to this length. One search runs at a time.
	shownContents     = 20
	shownContentBytes = 16 << 10
	// shownIDs is the number of ids of a page.
	shownIDs = 100
)

// reporter provides the live page with the state of a server.
type reporter struct {
	*Server
	started time.Time

	mu     sync.Mutex
	queues map[*collection.Collection]*queueReport

	searching chan struct{} // held during a search for versions
}

// queueReport is the cached state of a queue's segments; each part has its time.
type queueReport struct {
	listed   time.Time
	segments []queue.SegmentInfo
	sampled  time.Time
	resident collection.Residency
	counted  time.Time
	took     time.Duration
	counting bool
	live     map[queue.SegmentID]collection.Live
	stored   map[queue.SegmentID]int64 // bytes of each segment at the time of the count
}

func newReporter(d *Server) *reporter {
	return &reporter{Server: d, started: time.Now(), queues: make(map[*collection.Collection]*queueReport), searching: make(chan struct{}, 1)}
}

// Sample implements livepage.Source.
func (r *reporter) Sample() livepage.Sample {
	boxcar := r.boxcar.Stats()
	s := livepage.Sample{
		Time: time.Now(), Methods: r.metrics.latencies(),
		Boxcar: livepage.BoxcarSample{Leases: boxcar.Leases, Refused: boxcar.Refused},
	}
	for _, h := range r.Held() {
		sum := livepage.CollectionSample{Name: h.Name()}
		if column := h.Column(); column != nil {
			r.states.observe(h.Name(), column.Report, s.Time)
		}
		for _, c := range h.Shards() {
			status := c.Status()
			r.states.observe(c.Name(), c.report(status), s.Time)
			sum.Found += status.Gets.Found
			sum.LagBytes += status.LagBytes()
			sum.VisibleAfter = max(sum.VisibleAfter, status.VisibleAfter.Seconds())
			bounds, counts := status.Freshness.Buckets()
			sum.Freshness = sum.Freshness.Plus(livepage.Histogram{Bounds: bounds, Counts: counts})
			bounds, counts = status.Canaries.Buckets()
			sum.Canaries = sum.Canaries.Plus(livepage.Histogram{Bounds: bounds, Counts: counts})
			if index, segments, ok := c.ColdReads(); ok {
				sum.ColdIndex = sum.ColdIndex.Plus(histogramOf(&index))
				sum.ColdQueue = sum.ColdQueue.Plus(histogramOf(&segments))
			}
		}
		s.Collections = append(s.Collections, sum)
	}
	r.states.forgetOthers()
	return s
}

func histogramOf(reads *collection.ColdReads) livepage.Histogram {
	bounds, counts := reads.Buckets()
	return livepage.Histogram{Bounds: bounds, Counts: counts}
}

// Status is part of livepage.Source.
func (r *reporter) Status() livepage.Status {
	host, err := os.Hostname()
	if err != nil {
		host = r.HTTPAddress()
	}
	readiness := r.Readiness()
	s := livepage.Status{
		Time: time.Now(), Host: host, Version: buildinfo.Version(), Started: r.started,
		Ready: readiness.Ready, Ending: readiness.Ending,
		Memory: r.memory(), Boxcar: r.boxcarStatus(), Collections: []livepage.Collection{},
	}
	var held []*collection.Collection
	for _, h := range r.Held() {
		var shards []livepage.Collection
		for _, one := range h.Shards() {
			described := r.collectionStatus(one.Collection, r.shardReadiness(one))
			described.Manifest = one.Manifest
			shards, held = append(shards, described), append(held, one.Collection)
		}
		if column := h.Column(); column != nil {
			column.Readiness = r.states.describe(h.Name(), column.Report)
			s.Columns, s.Shards = append(s.Columns, *column), append(s.Shards, shards...)
			if len(shards) > 0 {
				shards = []livepage.Collection{livepage.Sum(h.Name(), shards)}
			}
		}
		s.Collections = append(s.Collections, shards...)
	}
	r.forgetOthers(held)
	return s
}

// forgetOthers drops the cached state of collections that are not held any more: shards move
// away, and another manifest is another collection.
func (r *reporter) forgetOthers(held []*collection.Collection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.queues, func(c *collection.Collection, _ *queueReport) bool { return !slices.Contains(held, c) })
}

func (r *reporter) memory() livepage.Memory {
	budget, messages := r.collections.Budget.Stats(), r.messages.Stats()
	heap := []runtimemetrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	runtimemetrics.Read(heap)
	return livepage.Memory{
		BudgetBytes: budget.Bytes, MemtableBytes: budget.Memtables, PinnedBytes: budget.Pinned,
		MergeBytes: budget.Merges, FilterBytes: budget.Filters,
		RequestBytes: messages.Used, RequestBudget: messages.Limit,
		GoHeapBytes: int64(heap[0].Value.Uint64() - heap[1].Value.Uint64()),
	}
}

func (r *reporter) boxcarStatus() livepage.Boxcar {
	stats, board := r.boxcar.Stats(), r.boxcar.Board()
	b := livepage.Boxcar{
		Address: r.BoxcarAddress(), Zone: board.Zone, Draining: r.ending.Load() || stats.Draining,
		Connections: stats.Connections, Accepted: stats.Accepted, LowestFree: stats.LowestFree,
		InFlight: stats.InFlight, Streams: stats.Streams, Requests: stats.Requests, OtherZone: stats.OtherZone, Errors: stats.Errors,
		Refused: stats.Refused, Panics: stats.Panics, Faults: stats.Faults,
		RefusedBy: map[string]uint64{}, Leases: stats.Leases, Denied: stats.Denied,
		Slots: []livepage.Slot{}, More: board.More,
	}
	for reason, n := range stats.RefusedBy {
		if n > 0 {
			b.RefusedBy[reason] = n
		}
	}
	for _, s := range board.Slots {
		b.Slots = append(b.Slots, livepage.Slot{
			Number: s.Number, Client: s.Client, Identity: s.Identity, Address: s.Address,
			Age: s.Age.Seconds(), Requests: s.Requests, Errors: s.Errors, Busy: s.Busy,
		})
	}
	return b
}

func (r *reporter) collectionStatus(c *collection.Collection, ready CollectionReadiness) livepage.Collection {
	status := c.Status()
	report := r.queueReport(c)
	result := livepage.Collection{
		Name: c.Name(), Readiness: ready.Readiness, Position: ready.Position,
		LagBytes: ready.LagBytes, LagSeconds: ready.LagSeconds,
		LastAppended: livepage.TimeOrNil(status.LastAppended), CanarySent: livepage.TimeOrNil(status.CanarySent), VisibleAfter: status.VisibleAfter.Seconds(),
		Gets:    livepage.Gets{Found: status.Gets.Found, NotFound: status.Gets.NotFound, Unavailable: status.Gets.Unavailable, Failed: status.Gets.Failed},
		Applied: status.Applied, Swept: status.Swept, Quarantined: status.Quarantined,
		Scrubbed: status.Scrub.Bytes, ScrubEnded: livepage.TimeOrNil(status.Scrub.Ended),
		Faults: ready.Faults, MoreFaults: ready.MoreFaults,
		Queue: queueStatus(report), Index: indexStatus(c.IndexStats(), c.FilterPages()),
	}
	result.Queue.Mapped, result.Index.Mapped = mapped(report.resident.Segments), mapped(report.resident.Index)
	if result.Queue.Bytes > 0 {
		entries := float64(result.Queue.Documents + result.Queue.Deletes)
		result.LagDocuments = int64(entries * float64(result.LagBytes) / float64(result.Queue.Bytes))
	}
	return result
}

// queueReport returns the cached state of a collection's segments. It refreshes list and
// residency if they are old, and starts a count of live bytes if that is old.
func (r *reporter) queueReport(c *collection.Collection) queueReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := r.queues[c]
	if report == nil {
		report = &queueReport{}
		r.queues[c] = report
	}
	if time.Since(report.listed) >= segmentsLife {
		if segments, err := c.Segments(); err != nil {
			r.options.Logger.Warn("segments are missing from the status", "collection", c.Name(), "error", err)
		} else {
			report.segments, report.listed = segments, time.Now()
		}
	}
	if time.Since(report.sampled) >= segmentsLife {
		report.resident, report.sampled = c.Residency(), time.Now()
	}
	if !report.counting && time.Since(report.counted) >= max(censusLife, censusRest*report.took) && c.Ready() {
		report.counting = true
		r.serving.Go(func() { r.count(c, report) })
	}
	return *report
}

// count counts the live bytes of a collection's segments; it stops when the server stops.
func (r *reporter) count(c *collection.Collection, report *queueReport) {
	started := time.Now()
	segments, err := c.Segments()
	var live map[queue.SegmentID]collection.Live
	if err == nil {
		live, err = c.Census(r.alive)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	report.counting = false
	report.took, report.counted = time.Since(started), time.Now()
	if err == nil {
		report.live, report.stored = live, make(map[queue.SegmentID]int64, len(segments))
		for _, s := range segments {
			report.stored[s.ID] = s.StoredBytes
		}
	} else if r.alive.Err() == nil {
		r.options.Logger.Warn("counting live bytes failed", "collection", c.Name(), "error", err)
	}
}

// mapped returns nil if the residency is unknown, to omit it from JSON.
func mapped(of collection.PartResidency) *livepage.Mapped {
	if of.MappedBytes == 0 {
		return nil
	}
	return &livepage.Mapped{Bytes: of.MappedBytes, ResidentRatio: of.Share}
}

func queueStatus(report queueReport) livepage.Queue {
	q := livepage.Queue{Segments: []livepage.Segment{}}
	if report.live != nil {
		q.Census = &report.counted
	}
	for _, s := range report.segments {
		segment := livepage.Segment{
			First: uint32(s.ID), Last: uint32(s.Last), Generation: s.Generation, Sealed: s.Sealed, Codec: s.Codec,
			Bytes: s.Bytes, Documents: s.Documents, Deletes: s.Deletes, RawBytes: s.RawBytes, StoredBytes: s.StoredBytes,
			FirstAppended: livepage.TimeOrNil(s.FirstAppended), LastAppended: livepage.TimeOrNil(s.LastAppended),
		}
		// Bytes that arrived after the census would appear as dead.
		stored, counted := report.stored[s.ID]
		segment.Counted = counted && stored == s.StoredBytes
		for n := s.ID; n <= s.Last && report.live != nil; n++ {
			segment.LiveBytes += report.live[n].StoredBytes
			segment.LiveDocuments += report.live[n].Documents
		}
		q.LiveDocuments += segment.LiveDocuments
		q.Bytes += s.Bytes
		q.Documents += s.Documents
		q.Deletes += s.Deletes
		q.Segments = append(q.Segments, segment)
	}
	return q
}

func indexStatus(stats lsm.Stats, pages []lsm.TableFilter) livepage.Index {
	index := livepage.Index{
		Tables: []livepage.Table{}, Merges: []livepage.Merge{},
		MemtableBytes: stats.MemtableBytes, MemtablesWaiting: stats.MemtablesWaiting, LogBytes: stats.LogBytes,
		Flushes: stats.Writes.Flushes, MergesDone: stats.Writes.Merges, Amplification: stats.Writes.Amplification(),
		Delays: stats.Writes.Delays, Stalls: stats.Writes.Stalls,
		Filter: livepage.Filter{
			BudgetBytes: stats.Filter.BudgetBytes, IndexBytes: stats.Filter.IndexBytes,
			PageBytes: stats.Filter.PageBytes, ResidentBytes: stats.Filter.ResidentBytes,
			Pages: stats.Filter.Pages, Resident: stats.Filter.ResidentPages,
			Loaded: stats.Filter.Loaded, Dropped: stats.Filter.Dropped,
		},
	}
	if stats.Problem != nil {
		index.Problem = stats.Problem.Error()
	}
	merging := map[uint64]bool{}
	for _, m := range stats.Merges {
		index.Merges = append(index.Merges, livepage.Merge{Tables: m.Tables, InputBytes: m.InputBytes, WrittenBytes: m.WrittenBytes, Begun: m.Begun})
		for _, number := range m.Tables {
			merging[number] = true
		}
	}
	for _, t := range stats.Tables {
		index.Entries += t.Entries
		index.Tables = append(index.Tables, livepage.Table{
			Number: t.Number, Entries: t.Entries, Tombstones: t.Tombstones, Bytes: t.Bytes, Units: t.Units,
			Probes: t.Filter.Probes, Spared: t.Filter.No, Pages: t.Filter.Pages, Resident: t.Filter.ResidentPages,
			Merging: merging[t.Number],
		})
	}
	for _, filter := range pages {
		table := livepage.FilterPages{Table: filter.Table}
		for _, p := range filter.Pages {
			table.Pages = append(table.Pages, livepage.FilterPage{Bytes: p.Bytes, Resident: p.Resident, Usefulness: p.Usefulness})
		}
		index.Filter.Tables = append(index.Filter.Tables, table)
	}
	return index
}

// LookUp implements livepage.Source.
func (r *reporter) LookUp(ctx context.Context, collection, id string, versions bool) livepage.LookUp {
	result := livepage.LookUp{Collection: collection, ID: id, VersionsAsked: versions}
	h := r.heldCollection(collection)
	if h == nil {
		result.Problem = "No such collection."
		return result
	}
	c, problem := h.Lookup(id)
	if c == nil {
		result.Problem = problem
		return result
	}
	if err := r.Authorize(ctx, collection); err != nil {
		result.Problem = err.Error()
		return result
	}
	location, err := c.Locate([]byte(id))
	if err == nil {
		result.Address, result.StoredBytes, result.Expires = location.Address.String(), location.StoredBytes, location.Expires
		result.Codec = r.codecOf(c, location.Address.Segment)
		var document []byte
		if document, err = c.Get(nil, []byte(id)); err == nil {
			result.Found, result.Bytes = true, len(document)
			result.Document, result.Cut = shownDocument(document, shownDocumentBytes)
		}
	}
	if err != nil {
		result.Problem = answerError(err).Message
	}
	if location.Expired {
		result.Problem = "The document has expired."
	}
	if versions {
		r.findVersions(ctx, c, &result)
	}
	return result
}

// Browse implements livepage.Source.
func (r *reporter) Browse(ctx context.Context, name, prefix, after string) livepage.Listing {
	result := livepage.Listing{Collection: name, Prefix: prefix, Status: http.StatusOK}
	fail := func(err *httpapi.Error) livepage.Listing {
		result.IDs, result.Problem, result.Status = nil, err.Message, err.Status()
		return result
	}
	ids := r.lister(name)
	if ids == nil {
		return fail(httpapi.Errorf(httpapi.CodeNoCollection, "no collection %q", name))
	}
	if err := r.Authorize(ctx, name); err != nil {
		return fail(httpapi.Errorf(httpapi.CodeForbidden, "%v", err))
	}
	options := docservice.ScanOptions{Prefix: []byte(prefix), After: []byte(after), IDsOnly: true}
	err := ids.Scan(ctx, options, func(id []byte, _ collection.Answer) error {
		if len(result.IDs) == shownIDs {
			return errPageEnds
		}
		result.IDs = append(result.IDs, string(id))
		return nil
	})
	if result.More = errors.Is(err, errPageEnds); err != nil && !result.More {
		return fail(answerError(err))
	}
	return result
}

// Diagnostics implements livepage.Source.
func (r *reporter) Diagnostics() (d livepage.Diagnostics) {
	if r.options.RecentLog != nil {
		d.Log = r.options.RecentLog()
	}
	if r.options.Settings != nil {
		d.Settings = r.options.Settings()
	}
	return d
}

// Discloses implements livepage.Source.
func (r *reporter) Discloses(ctx context.Context) bool {
	return r.options.HTTP.debugs() && r.Authorize(ctx, credentials.Everything) == nil
}

const searchBusy = "Another search for versions is running; try again in some seconds."

// search begins a search for versions, unless one is running.
func (r *reporter) search() (done func(), ok bool) {
	select {
	case r.searching <- struct{}{}:
		return func() { <-r.searching }, true
	default:
		return nil, false
	}
}

// findVersions searches the queue for the newest versions of an id.
func (r *reporter) findVersions(ctx context.Context, c *collection.Collection, result *livepage.LookUp) {
	done, ok := r.search()
	if !ok {
		result.VersionsProblem = searchBusy
		return
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, versionsTime)
	defer cancel()
	id := []byte(result.ID)
	var found []collection.Version
	err := c.Versions(ctx, id, func(v collection.Version) error {
		if found = append(found, v); len(found) == 2*shownVersions {
			found = slices.Delete(found, 0, shownVersions)
			result.OlderVersions += shownVersions
		}
		return nil
	})
	if err != nil {
		result.VersionsProblem = "The queue was not read to its end, so newer versions may exist: " + err.Error()
	}
	if more := len(found) - shownVersions; more > 0 {
		found = found[more:]
		result.OlderVersions += more
	}
	for i, v := range found {
		shown := livepage.Version{Address: v.Address.String(), Appended: v.Appended, Deleted: v.Deleted, Expires: v.Expires, StoredBytes: v.StoredBytes}
		if i >= len(found)-shownContents && !v.Deleted {
			document, err := c.VersionDocument(nil, id, v)
			if err != nil {
				shown.Problem = err.Error()
			} else {
				shown.Read, shown.Bytes = true, len(document)
				shown.Document, shown.Cut = shownDocument(document, shownContentBytes)
			}
		}
		result.Versions = append(result.Versions, shown)
	}
}

// codecOf returns the codec of a segment, empty if it is unknown.
func (r *reporter) codecOf(c *collection.Collection, n queue.SegmentID) string {
	for _, s := range r.queueReport(c).segments {
		if s.ID <= n && n <= s.Last {
			return s.Codec
		}
	}
	return ""
}

// shownDocument returns a document as the page shows it: as text, truncated if it is too
// long, or a note if it is not text.
func shownDocument(document []byte, most int) (text string, cut bool) {
	if cut = len(document) > most; cut {
		document = document[:most]
		for len(document) > 0 && !utf8.RuneStart(document[len(document)-1]) {
			document = document[:len(document)-1]
		}
		document = document[:len(document)-1] // the first bytes of a truncated character
	}
	if !utf8.Valid(document) {
		return "The document is not text.", false
	}
	return string(document), cut
}
