package explain

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"docstore/internal/units"
)

// Method is the stream of a server: it answers one message, a Request in JSON, with Facts in JSON.
const Method = "/docstore.v1.Server/Explain"

// HistoryTime bounds the search of a server for versions. It reads about five million entries of
// a queue.
const HistoryTime = 5 * time.Second

// MaxFaults bounds the faults in Facts.
const MaxFaults = 10

// Request asks for the facts about an id.
type Request struct {
	Collection string `json:"collection"`
	ID         []byte `json:"id"`
	History    bool   `json:"history,omitempty"` // search the queue for versions
}

// Answers to an id: the words of docservice.AnswerCode, and these.
const (
	Found        = "found"
	notFound     = "not_found"
	unavailable  = "unavailable"
	moved        = "moved"
	NoCollection = "no_collection"
	Forbidden    = "forbidden"
)

// Facts are what a server knows about an id.
type Facts struct {
	Version string `json:"version"` // of the program
	HTTP    string `json:"http"`    // address of its page
	Shard   string `json:"shard"`   // the name of the collection, or NAME/NUMBER; empty: the server does not have it
	Answer  string `json:"answer"`
	Problem string `json:"problem,omitempty"` // why the document is not the answer
	// Entry is that of the index; nil: it has none.
	Entry *Entry `json:"entry,omitempty"`
	// History is the result of the search of the queue; nil: it was not searched.
	History  *History  `json:"history,omitempty"`
	Ready    bool      `json:"ready"`
	NotReady string    `json:"not_ready,omitempty"` // why Ready is false
	Queue    string    `json:"queue,omitempty"`     // its id
	Position Address   `json:"position"`            // end of the part of the queue that the server has read
	LagBytes int64     `json:"lag_bytes"`           // of the queue here that were not read
	Lag      float64   `json:"lag_seconds"`
	Faults   []string  `json:"faults,omitempty"` // at most MaxFaults
	Manifest *Manifest `json:"manifest,omitempty"`
	Column   *Column   `json:"column,omitempty"`
	Cache    string    `json:"cache,omitempty"` // state of the document in memcached; empty: there is no memcached
}

// CacheWrong is the Facts.Cache of a value with another checksum than that of the index.
const CacheWrong = "wrong"

// Address is that of a version in a queue, or a position between two.
type Address struct {
	Segment uint32 `json:"segment"`
	Block   uint32 `json:"block"`
	Index   uint32 `json:"index"`
}

func (a Address) String() string { return fmt.Sprintf("%d/%d/%d", a.Segment, a.Block, a.Index) }

// Compare orders addresses by age.
func (a Address) Compare(b Address) int {
	return cmp.Or(cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Block, b.Block), cmp.Compare(a.Index, b.Index))
}

// Entry is the entry of an index, whose document may have been left out by compaction.
type Entry struct {
	Address     Address    `json:"address"`
	StoredBytes int        `json:"stored_bytes"`
	Expires     *time.Time `json:"expires,omitempty"` // nil: never
}

// History describes the versions of an id in the queue of a server.
type History struct {
	Newest    *Version `json:"newest,omitempty"` // nil: there is none
	Documents int      `json:"documents"`        // versions that are not deletes
	// Problem is why later versions may exist; empty: there are none in the files here.
	Problem string `json:"problem,omitempty"`
}

// Version is one version, or a delete.
type Version struct {
	Address  Address    `json:"address"`
	Appended time.Time  `json:"appended"`
	Deleted  bool       `json:"deleted,omitempty"`
	Expires  *time.Time `json:"expires,omitempty"`
}

// Manifest is that of a published collection.
type Manifest struct {
	Announced uint64  `json:"announced"`
	Target    uint64  `json:"target"`
	Served    uint64  `json:"served"`
	Increment uint64  `json:"increment,omitempty"`
	Pinned    bool    `json:"pinned,omitempty"`
	PinnedBy  string  `json:"pinned_by,omitempty"`
	PinReason string  `json:"pin_reason,omitempty"`
	Frozen    bool    `json:"frozen,omitempty"` // after a rollback
	Held      string  `json:"held,omitempty"`   // why nothing is announced
	Behind    float64 `json:"behind_seconds"`   // for which the target was not served
	Error     string  `json:"error,omitempty"`  // of the last attempt to follow
}

// Column is the replica set of a server.
type Column struct {
	Name  string `json:"name"`
	Row   int    `json:"row"`
	Epoch uint64 `json:"epoch"` // of the placement that the server follows
}

// Item is a fact for a list.
type Item struct{ Name, Value string }

// List returns the facts that are known, for people.
func (f *Facts) List() []Item {
	var list []Item
	add := func(name, value string) {
		if value != "" {
			list = append(list, Item{name, value})
		}
	}
	add("answer", f.Answer)
	add("problem", f.Problem)
	if e := f.Entry; e != nil {
		add("version", e.Address.String())
		add("stored", units.FormatBytes(int64(e.StoredBytes)))
	}
	if h := f.History; h != nil {
		if v := h.Newest; v != nil {
			add("newest in the queue", v.Address.String()+v.appended())
		}
		add("versions in the queue", strconv.Itoa(h.Documents))
		add("search", h.Problem)
	}
	if f.Shard != "" {
		add("shard", f.Shard)
		add("position", f.Position.String())
		add("not read", units.FormatBytes(f.LagBytes))
	}
	add("not ready", f.NotReady)
	for _, fault := range f.Faults {
		add("fault", fault)
	}
	if m := f.Manifest; m != nil {
		add("manifest", fmt.Sprintf("%d is served, %d is the target, %d is announced", m.Served, m.Target, m.Announced))
		if m.Pinned {
			add("pinned by", cmp.Or(m.PinnedBy, "an unknown user")+m.because())
		}
		add("held", m.Held)
		add("store", m.Error)
	}
	if c := f.Column; c != nil {
		add("column", fmt.Sprintf("%s, row %d, epoch %d", c.Name, c.Row, c.Epoch))
	}
	add("memcached", f.Cache)
	add("program", f.Version)
	return list
}
