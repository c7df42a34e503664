package boxcar

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"docstore/internal/units"
)

// findings is the result of a probe.
type findings struct {
	Wrote         bool          `json:"wrote"` // a canary was written
	AppendSeconds float64       `json:"append_seconds,omitempty"`
	AppendError   string        `json:"append_error,omitempty"`
	Servers       []probeResult `json:"servers"`
	Whose         string        `json:"whose"` // the part at fault: me, them or ingest; empty: no fault
	Verdict       string        `json:"verdict"`
}

// probeResult is the result for one server. A time of 0 is unknown.
type probeResult struct {
	Server       string     `json:"server"`
	Column       string     `json:"column,omitempty"`
	Unreachable  string     `json:"unreachable,omitempty"` // why no slot was granted
	Draining     bool       `json:"draining"`              // the reason is draining
	EchoSeconds  float64    `json:"echo_seconds,omitempty"`
	GetSeconds   float64    `json:"get_seconds,omitempty"`
	GetError     string     `json:"get_error,omitempty"`
	Sent         *time.Time `json:"sent,omitempty"`          // time of the served canary
	FreshSeconds float64    `json:"fresh_seconds,omitempty"` // from writing to serving the new canary
	StatsError   string     `json:"stats_error,omitempty"`
	Ready        bool       `json:"ready"`
	Stopped      string     `json:"stopped,omitempty"` // why it has stopped reading its queue
	LagBytes     uint64     `json:"lag_bytes"`
	Position     position   `json:"position"`
	State        string     `json:"state"` // a description; "well" if no fault
	otherShards  bool       // the server does not have the shard of the canary
}

// position is the end of the part of the queue that a server has read: segment, block,
// index.
type position [3]uint32

func (p position) String() string { return fmt.Sprintf("%d/%d/%d", p[0], p[1], p[2]) }

// wellState is the state of a server without a fault.
const wellState = "well"

// conclude determines the state of each server and the verdict.
func (f *findings) conclude() {
	furthest := position{}
	for _, s := range f.Servers {
		if slices.Compare(s.Position[:], furthest[:]) > 0 {
			furthest = s.Position
		}
	}
	unreachable, arrived := 0, 0
	var bad []string
	for i := range f.Servers {
		s := &f.Servers[i]
		s.State = f.stateOf(s, furthest)
		if s.State != wellState {
			bad = append(bad, s.Server+": "+s.State)
		}
		if s.Unreachable != "" && !s.Draining {
			unreachable++
		}
		if s.FreshSeconds > 0 {
			arrived++
		}
	}
	all := len(f.Servers)
	switch {
	case all == 0:
		f.Whose, f.Verdict = "them", "no server is listed"
	case unreachable == all:
		f.Whose, f.Verdict = "me", fmt.Sprintf("none of %s can be reached from here (%s); run it on another machine: if they answer there, "+
			"this one's network, names or certificates are at fault", serversOf(all), f.Servers[0].Unreachable)
	case f.AppendError != "":
		f.Whose, f.Verdict = "ingest", "the canary could not be appended: "+f.AppendError
	case f.Wrote && arrived == 0 && f.allOtherwiseWell():
		f.Whose, f.Verdict = "ingest", "the canary was appended and is on no server, although all have read their queues to the end; "+
			"see the log of the updater, and docstore-sync, which copies to all servers"
	case len(bad) > 0:
		f.Whose, f.Verdict = "them", fmt.Sprintf("%d of %s: %s", len(bad), serversOf(all), strings.Join(bad, "; "))
	default:
		f.Verdict = fmt.Sprintf("%d of %s", all, serversOf(all))
		if f.Wrote {
			slowest := slices.MaxFunc(f.Servers, func(a, b probeResult) int { return cmp.Compare(a.FreshSeconds, b.FreshSeconds) })
			f.Verdict += fmt.Sprintf("; the canary was appended in %.2f s, and served by the last, %s, after %.2f s", f.AppendSeconds, slowest.Server, slowest.FreshSeconds)
		}
	}
}

// allOtherwiseWell reports whether every reachable server has read all of its queue.
func (f *findings) allOtherwiseWell() bool {
	return !slices.ContainsFunc(f.Servers, func(s probeResult) bool {
		return s.Unreachable != "" || s.StatsError != "" || s.GetError != "" || s.Stopped != "" || !s.Ready || s.LagBytes > 0
	})
}

// stateOf describes the state of a server; furthest is the furthest position of all
// servers.
func (f *findings) stateOf(s *probeResult, furthest position) string {
	switch {
	case s.Draining:
		return "draining: it gives out no slots; run boxcar undrain --servers " + s.Server
	case s.Unreachable != "":
		return "does not answer: " + s.Unreachable
	case s.StatsError != "":
		return s.StatsError
	case s.Stopped != "":
		return "reading its queue failed: " + s.Stopped
	case s.otherShards && !s.Ready:
		return "it is not ready for all shards of its column; see boxcar fleet"
	case s.otherShards:
		return wellState
	case !s.Ready:
		return "it has not read its queue to the end yet; " + units.FormatBytes(int64(s.LagBytes)) + " are left"
	case s.GetError != "":
		return "fetching the canary failed: " + s.GetError
	case !f.Wrote || f.AppendError != "" || s.FreshSeconds > 0:
		return wellState
	case s.LagBytes > 0:
		return "the canary is not served: the index is " + units.FormatBytes(int64(s.LagBytes)) + " behind the queue here"
	case slices.Compare(s.Position[:], furthest[:]) < 0:
		return fmt.Sprintf("the canary is not here: this copy of the queue ends at %s, another server's at %s; check docstore-sync on it", s.Position, furthest)
	}
	return "the canary is not here, although the queue is read to its end"
}

func serversOf(n int) string { return units.FormatCountOf(int64(n), "server", "servers") }
