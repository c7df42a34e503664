package livepage

import (
	"time"

	"docstore/docservice/readiness"
)

// Status is the state of a daemon at one moment: the body of /api/v1/status. Existing
// fields keep their names and meanings; new ones may be added. Totals count since the start
// of the daemon, and durations are in seconds.
type Status struct {
	Time        time.Time    `json:"time"`
	Host        string       `json:"host"`
	Version     string       `json:"version"`
	Started     time.Time    `json:"started"`
	Ready       bool         `json:"ready"`
	Ending      bool         `json:"ending"`
	Memory      Memory       `json:"memory"`
	Latencies   []Latency    `json:"latencies"`
	Columns     []Column     `json:"columns,omitempty"` // of collections of several shards
	Collections []Collection `json:"collections"`       // one of several shards is the Sum of its shards here
	Shards      []Collection `json:"shards,omitempty"`  // on this server, with the names NAME/NUMBER
	Boxcar      Boxcar       `json:"boxcar"`
}

// Column describes the shards of a collection on this server.
type Column struct {
	Collection string `json:"collection"`
	Column     string `json:"column"` // empty: it was not chosen yet
	Row        int    `json:"row"`    // -1: none was held yet
	Zone       string `json:"zone,omitempty"`
	// Report is that of the column; Readiness is the same with an estimate.
	Report readiness.Report `json:"-"`
	Readiness
	Epoch      uint64 `json:"epoch"`   // of the placement; 0: none is known
	Serving    int    `json:"serving"` // shards
	Fetching   int    `json:"fetching"`
	Moved      int    `json:"moved"` // to another column, and served still
	Failed     int    `json:"failed"`
	UsedBytes  int64  `json:"used_bytes"` // of the data directory
	LimitBytes int64  `json:"limit_bytes"`
}

// Readiness is the state of a copy.
type Readiness struct {
	Ready    bool                `json:"ready"`
	State    readiness.State     `json:"state"`
	Reason   string              `json:"reason,omitempty"` // why it is not ready
	Progress *readiness.Progress `json:"progress,omitempty"`
}

// ReadinessOf describes a report.
func ReadinessOf(r readiness.Report) Readiness {
	return Readiness{r.IsReady(), r.State, r.Reason(), r.Progress}
}

// Memory is the memory budget of a daemon and its use.
type Memory struct {
	BudgetBytes   int64 `json:"budget_bytes"`   // of memtables, filters and merges
	MemtableBytes int64 `json:"memtable_bytes"` // pinned ones included
	PinnedBytes   int64 `json:"pinned_bytes"`   // part of them held by snapshots and iterators, counted as full
	MergeBytes    int64 `json:"merge_bytes"`
	FilterBytes   int64 `json:"filter_bytes"`
	RequestBytes  int64 `json:"request_bytes"` // requests being received
	RequestBudget int64 `json:"request_budget_bytes"`
	GoHeapBytes   int64 `json:"go_heap_bytes"` // memory held by the Go runtime
}

// Latency holds the latencies of one kind of requests on this server.
type Latency struct {
	Listener  string  `json:"listener"` // boxcar, http or grpc
	Method    string  `json:"method"`
	Total     uint64  `json:"total"`
	PerSecond float64 `json:"per_second"` // this and the percentiles: over the last ten seconds
	P50       float64 `json:"p50_seconds"`
	P99       float64 `json:"p99_seconds"`
}

// Mapped describes the mapped files of a queue or an index.
type Mapped struct {
	Bytes         int64   `json:"bytes"`          // segments are mapped when a document is first read from them
	ResidentRatio float64 `json:"resident_ratio"` // share of them in memory, from a sample; 1 if the daemon may not write the files
}

// Freshness holds the times until new entries were served here: from the append to the queue, of
// each batch that of the oldest one, or of canaries from the event at the source.
type Freshness struct {
	Total uint64  `json:"total"`       // batches or canaries since the collection was opened
	P50   float64 `json:"p50_seconds"` // of the last five minutes; 0: none
	P99   float64 `json:"p99_seconds"`
}

// ColdReads holds the durations of the reads that waited for the disk. A batch counts once.
type ColdReads struct {
	Total     uint64  `json:"total"`      // since the store was opened
	PerSecond float64 `json:"per_second"` // this and the percentiles: over the last ten seconds
	P50       float64 `json:"p50_seconds"`
	P99       float64 `json:"p99_seconds"`
}

// Collection is a queue and its index, or the Sum of several.
type Collection struct {
	Name   string `json:"name"`
	Shards int    `json:"shards,omitempty"` // on this server, if there are several
	Readiness
	Position     string     `json:"position"` // end of the part of the queue in the index; empty for a sum
	LagBytes     int64      `json:"lag_bytes"`
	LagDocuments int64      `json:"lag_documents"` // estimated from the bytes
	LagSeconds   float64    `json:"lag_seconds"`
	LastAppended *time.Time `json:"last_appended,omitempty"` // of the newest entry in the index
	VisibleAfter float64    `json:"visible_after_seconds"`   // from append to index; 0: none since the queue was first read to its end
	Freshness    Freshness  `json:"freshness"`               // not of a shard
	Canaries     Freshness  `json:"canaries"`                // not of a shard
	CanarySent   *time.Time `json:"canary_sent,omitempty"`   // when the newest canary was appended
	Gets         Gets       `json:"gets"`
	Applied      uint64     `json:"entries_applied"`
	Swept        uint64     `json:"expired_entries_removed"`
	Quarantined  uint64     `json:"files_quarantined"`
	Scrubbed     uint64     `json:"index_bytes_scrubbed"`
	ScrubEnded   *time.Time `json:"index_scrub_ended,omitempty"` // end of the last complete scrub
	Faults       []Fault    `json:"faults"`
	MoreFaults   int        `json:"more_faults,omitempty"`
	Queue        Queue      `json:"queue"`
	Index        Index      `json:"index"`
	Manifest     *Manifest  `json:"manifest,omitempty"` // of a collection in an object store
}

// Manifest describes which manifest of a collection in an object store is served.
type Manifest struct {
	Announced uint64     `json:"announced"`           // number; 0: none
	Target    uint64     `json:"target"`              // to be served by this server
	Served    uint64     `json:"served"`              // whose files are here; 0: none
	Increment uint64     `json:"increment,omitempty"` // after the served manifest
	Held      string     `json:"held,omitempty"`      // why a stream has stopped to announce
	Frozen    bool       `json:"frozen,omitempty"`    // after a rollback nothing is announced until the queue has been reverted
	PinnedBy  string     `json:"pinned_by,omitempty"`
	PinReason string     `json:"pin_reason,omitempty"`
	PinnedAt  *time.Time `json:"pinned_at,omitempty"`
	// FetchedBytes of FetchBytes have been downloaded for the move in progress.
	FetchedBytes int64      `json:"fetched_bytes,omitempty"`
	FetchBytes   int64      `json:"fetch_bytes,omitempty"`
	FetchRate    float64    `json:"fetch_bytes_per_second,omitempty"`
	PeerBytes    int64      `json:"peer_bytes"`             // fetched from other servers since the start
	BucketBytes  int64      `json:"bucket_bytes"`           // from the store
	Behind       float64    `json:"behind_seconds"`         // for which the target has not been served
	Error        string     `json:"error,omitempty"`        // of the last attempt to follow
	LastContact  *time.Time `json:"last_contact,omitempty"` // with the store
}

// Gets counts requested ids by answer.
type Gets struct {
	Found       uint64 `json:"found"`
	NotFound    uint64 `json:"not_found"`
	Unavailable uint64 `json:"unavailable"`
	Failed      uint64 `json:"failed"`
}

// Fault is unrepaired damage in a file.
type Fault struct {
	Segment   uint32    `json:"segment,omitempty"`
	Offset    int64     `json:"offset"`
	Path      string    `json:"path,omitempty"`
	Reason    string    `json:"reason"`
	StopsTail bool      `json:"stops_tail"`
	Since     time.Time `json:"since"`
}

// Queue describes the segments of a collection.
type Queue struct {
	Bytes         int64     `json:"bytes"`
	Documents     int64     `json:"documents"` // superseded versions included
	Deletes       int64     `json:"deletes"`
	Segments      []Segment `json:"segments"`
	LiveDocuments int64     `json:"live_documents"` // ids that have a document, at the time of the census
	// Census is when live bytes and documents were last counted; nil: not yet.
	Census *time.Time `json:"census,omitempty"`
	// Mapped is nil if no segment is mapped, and on other systems than Linux.
	Mapped *Mapped `json:"mapped,omitempty"`
	// ColdReads is nil for a shard, and on other systems than Linux.
	ColdReads *ColdReads `json:"cold_reads,omitempty"`
}

// Segment is a file of the queue.
type Segment struct {
	First         uint32     `json:"first"`
	Last          uint32     `json:"last"` // more than first in a rewrite of several segments
	Generation    uint32     `json:"generation,omitempty"`
	Sealed        bool       `json:"sealed"`
	Codec         string     `json:"codec"`
	Bytes         int64      `json:"bytes"`
	Documents     int64      `json:"documents"`
	Deletes       int64      `json:"deletes"`
	RawBytes      int64      `json:"raw_bytes"`
	StoredBytes   int64      `json:"stored_bytes"`
	Counted       bool       `json:"counted"`    // counted by the census and unchanged since; otherwise live bytes and documents are unknown
	LiveBytes     int64      `json:"live_bytes"` // of the stored bytes, at the time of the census
	LiveDocuments int64      `json:"live_documents"`
	FirstAppended *time.Time `json:"first_appended,omitempty"`
	LastAppended  *time.Time `json:"last_appended,omitempty"`
}

// Index is the LSM tree of a collection.
type Index struct {
	Entries          uint64  `json:"entries"` // an id counts once for each table that has it
	Tables           []Table `json:"tables"`  // newest first
	Merges           []Merge `json:"merges"`  // in progress
	MemtableBytes    int64   `json:"memtable_bytes"`
	MemtablesWaiting int     `json:"memtables_waiting"`
	LogBytes         int64   `json:"log_bytes"`
	Flushes          uint64  `json:"flushes"`
	MergesDone       uint64  `json:"merges_done"`
	Amplification    float64 `json:"write_amplification"`
	Delays           uint64  `json:"write_delays"`
	Stalls           uint64  `json:"write_stalls"`
	Problem          string  `json:"problem,omitempty"`
	Filter           Filter  `json:"filter"`
	// Mapped and ColdReads are those of the tables, nil as in a Queue.
	Mapped    *Mapped    `json:"mapped,omitempty"`
	ColdReads *ColdReads `json:"cold_reads,omitempty"`
}

// Table is one sorted file of an index.
type Table struct {
	Number     uint64 `json:"number"`
	Entries    uint64 `json:"entries"`
	Tombstones uint64 `json:"tombstones"`
	Bytes      uint64 `json:"bytes"`
	Units      uint64 `json:"units"` // in memtables
	Probes     uint64 `json:"filter_probes"`
	Spared     uint64 `json:"filter_spared"` // lookups in which the filter avoided reading the table
	Pages      int    `json:"filter_pages"`
	Resident   int    `json:"filter_pages_resident"`
	Merging    bool   `json:"merging"`
}

// Merge is a merge of tables in progress.
type Merge struct {
	Tables       []uint64  `json:"tables"`
	InputBytes   uint64    `json:"input_bytes"`
	WrittenBytes uint64    `json:"written_bytes"`
	Begun        time.Time `json:"begun"`
}

// Filter is the Bloom filters of an index.
type Filter struct {
	BudgetBytes   int64  `json:"budget_bytes"`
	IndexBytes    int64  `json:"index_bytes"`
	PageBytes     int64  `json:"page_bytes"`
	ResidentBytes int64  `json:"resident_bytes"`
	Pages         int    `json:"pages"`
	Resident      int    `json:"resident"`
	Loaded        uint64 `json:"loaded"`
	Dropped       uint64 `json:"dropped"`
	// Tables has the pages of each table; it is used only by the page.
	Tables []FilterPages `json:"-"`
}

// FilterPages is the filter of a table, page by page in key order.
type FilterPages struct {
	Table uint64
	Pages []FilterPage
}

// FilterPage describes a page.
type FilterPage struct {
	Bytes      int64
	Resident   bool
	Usefulness float64 // table reads per minute that it avoids, or would if it were in memory
}

// Boxcar describes the Boxcar server.
type Boxcar struct {
	Address     string `json:"address"`
	Zone        string `json:"zone,omitempty"`
	Draining    bool   `json:"draining"`
	Connections int    `json:"connections"`
	Accepted    uint64 `json:"accepted"`
	LowestFree  int    `json:"lowest_free"`
	InFlight    int    `json:"in_flight"`
	Streams     int    `json:"streams"`
	Requests    uint64 `json:"requests"`
	OtherZone   uint64 `json:"other_zone,omitempty"` // of these, from clients of other zones
	Errors      uint64 `json:"errors"`
	Refused     uint64 `json:"refused"`
	// RefusedBy counts refusals by reason, without zeros.
	RefusedBy map[string]uint64 `json:"refused_by"`
	Leases    uint64            `json:"leases"` // slots granted
	Denied    uint64            `json:"leases_denied"`
	Panics    uint64            `json:"panics"`
	Faults    uint64            `json:"faults"`
	Slots     []Slot            `json:"slots"`
	More      int               `json:"more_slots,omitempty"`
}

// Slot is a granted slot.
type Slot struct {
	Number   int     `json:"slot"`
	Client   string  `json:"client"`
	Identity string  `json:"identity,omitempty"` // authenticated identity of the client
	Address  string  `json:"address"`
	Age      float64 `json:"age_seconds"`
	Requests uint64  `json:"requests"`
	Errors   uint64  `json:"errors"` // of the requests
	Busy     bool    `json:"busy"`
}

// LookUp is the result of a lookup.
type LookUp struct {
	Collection, ID string
	Found          bool
	Problem        string // why it was not found
	Address        string
	Codec          string
	StoredBytes    int
	Bytes          int
	Expires        time.Time // zero: never
	Document       string
	Cut            bool // the shown document is truncated
	Versions       []Version
	VersionsAsked  bool
	OlderVersions  int // number of older versions that are not listed
	// VersionsProblem is why newer versions may be missing, empty if none are.
	VersionsProblem string
}

// Version is one version of an id in the queue.
type Version struct {
	Address     string
	Appended    time.Time
	Deleted     bool
	Expires     time.Time
	StoredBytes int
	// Read: the document was read, and has Bytes bytes; Cut: only some of them are shown.
	Read     bool
	Bytes    int
	Document string
	Cut      bool
	Problem  string // why it could not be read
}

// TimeOrNil returns nil for the zero time, to omit it from JSON.
func TimeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
