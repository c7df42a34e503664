package readiness

import (
	"fmt"
	"slices"
	"time"

	"docstore/internal/units"
)

// State is the state of a copy. The values are part of /readyz, /api/v1/status and the metrics.
type State string

// The states, described in docs/operating.md.
const (
	Ready               State = "ready"
	CatchingUp          State = "catching_up_increments"
	Indexing            State = "indexing"
	Fetching            State = "fetching"
	Rebuilding          State = "rebuilding_index"
	NoFiles             State = "no_files"
	WaitingForFiles     State = "waiting_for_files"
	WaitingForManifest  State = "waiting_for_manifest"
	WaitingForStore     State = "waiting_for_store"
	WaitingForPlacement State = "waiting_for_placement"
	Stale               State = "stale"
	Faulted             State = "faulted"
)

// Worse reports whether a state is further from ready than another one. A state that is not known, as
// one of a later version, is the best.
func (s State) Worse(than State) bool { return slices.Index(states, s) > slices.Index(states, than) }

// states has all states. Of several copies, that of the last one in this order is reported.
var states = []State{
	Ready, CatchingUp, Indexing, Fetching, Rebuilding, NoFiles, WaitingForFiles, WaitingForManifest, WaitingForStore, WaitingForPlacement, Stale, Faulted,
}

// words begin the reason for a state.
var words = map[State]string{
	CatchingUp: "catching up", Indexing: "indexing", Fetching: "fetching", Rebuilding: "rebuilding the index", NoFiles: "no files",
	WaitingForFiles: "waiting for files", WaitingForManifest: "waiting for a manifest", WaitingForStore: "waiting for the object store",
	WaitingForPlacement: "waiting for the placement", Stale: "stale", Faulted: "faulted",
}

// Report is the state of a copy.
type Report struct {
	State    State
	Cause    string    // why it is not ready; empty: it is
	Progress *Progress // of the state; nil: it has none, or it is not known
}

// IsReady reports whether the copy is ready.
func (r Report) IsReady() bool { return r.State == Ready }

// Reason returns why the copy is not ready, with the progress; empty: it is.
func (r Report) Reason() string {
	if r.IsReady() {
		return ""
	}
	text := words[r.State]
	if r.Progress != nil {
		text += " " + r.Progress.String()
	}
	if r.Cause != "" {
		text += ": " + r.Cause
	}
	return text
}

// Progress is the progress of a state.
type Progress struct {
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
	Unit  Unit  `json:"unit"`
	// FilesDone of Files are complete, if the bytes are those of files.
	FilesDone int `json:"files_done,omitempty"`
	Files     int `json:"files,omitempty"`
	// SecondsLeft is an estimate; 0: there is none.
	SecondsLeft float64 `json:"seconds_left,omitempty"`
}

// Unit is the unit of a Progress.
type Unit string

// The units.
const (
	Bytes      Unit = "bytes"
	Increments Unit = "increments"
)

// String returns the progress for people.
func (p *Progress) String() string {
	text := fmt.Sprintf("%s of %s", units.FormatBytes(p.Done), units.FormatBytes(p.Total))
	switch {
	case p.Unit == Increments:
		text = units.FormatCountOf(p.Total-p.Done, "increment", "increments")
	case p.Files > 0:
		text = fmt.Sprintf("%d of %d files, %s", p.FilesDone, p.Files, text)
	}
	if p.SecondsLeft > 0 {
		text += fmt.Sprintf(", %s left", units.FormatDuration(time.Duration(p.SecondsLeft*float64(time.Second))))
	}
	return text
}

// plus returns the sum of two amounts. Either may be nil.
func (p *Progress) plus(other *Progress) *Progress {
	switch {
	case p == nil:
		return other
	case other == nil:
		return p
	}
	return &Progress{
		Done: p.Done + other.Done, Total: p.Total + other.Total, Unit: p.Unit, FilesDone: p.FilesDone + other.FilesDone, Files: p.Files + other.Files,
	}
}
