package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"docstore/cmd/internal/cli"
)

// findings is what a probe has found, and what follows from it.
type findings struct {
	Wrote         bool     `json:"wrote"` // a canary
	AppendSeconds float64  `json:"append_seconds,omitempty"`
	AppendError   string   `json:"append_error,omitempty"`
	Servers       []probed `json:"servers"`
	Whose         string   `json:"whose"` // fault it is: me, them or ingest; empty: all is well
	Verdict       string   `json:"verdict"`
}

// probed is what was found of one server. A time of 0 is not known.
type probed struct {
	Server       string     `json:"server"`
	Unreachable  string     `json:"unreachable,omitempty"` // why no slot could be had
	Draining     bool       `json:"draining"`              // that is why
	EchoSeconds  float64    `json:"echo_seconds,omitempty"`
	GetSeconds   float64    `json:"get_seconds,omitempty"`
	GetError     string     `json:"get_error,omitempty"`
	Sent         *time.Time `json:"sent,omitempty"`          // of the canary that it serves
	FreshSeconds float64    `json:"fresh_seconds,omitempty"` // from the writing to the serving of the new one
	StatsError   string     `json:"stats_error,omitempty"`
	Ready        bool       `json:"ready"`
	Stopped      string     `json:"stopped,omitempty"` // why it does not read its queue on
	LagBytes     uint64     `json:"lag_bytes"`
	Position     position   `json:"position"`
	State        string     `json:"state"` // in words; "well" if it is
}

// position is up to where a server has read its queue: segment, block, index.
type position [3]uint32

func (p position) String() string { return fmt.Sprintf("%d/%d/%d", p[0], p[1], p[2]) }

// wellState is the state of a server that nothing is wrong with.
const wellState = "well"

// conclude says how each server is and whose fault it is if that is not well.
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
		f.Whose, f.Verdict = "them", "no server is listed at present"
	case unreachable == all:
		f.Whose, f.Verdict = "me", fmt.Sprintf("none of %s can be reached from here (%s); try it on another machine: if they answer there, "+
			"this one's network, names or certificates are at fault", serversOf(all), f.Servers[0].Unreachable)
	case f.AppendError != "":
		f.Whose, f.Verdict = "ingest", "the canary could not be appended: "+f.AppendError
	case f.Wrote && arrived == 0 && f.allOtherwiseWell():
		f.Whose, f.Verdict = "ingest", "the canary was appended and has reached no server, and none has anything left to read; "+
			"look at the updater and its log, and at docstore-sync, which copies to all of them"
	case len(bad) > 0:
		f.Whose, f.Verdict = "them", fmt.Sprintf("%d of %s: %s", len(bad), serversOf(all), strings.Join(bad, "; "))
	default:
		f.Verdict = fmt.Sprintf("%d of %s", all, serversOf(all))
		if f.Wrote {
			slowest := slices.MaxFunc(f.Servers, func(a, b probed) int { return cmp.Compare(a.FreshSeconds, b.FreshSeconds) })
			f.Verdict += fmt.Sprintf("; the canary was appended in %.2f s, and served by the last, %s, after %.2f s", f.AppendSeconds, slowest.Server, slowest.FreshSeconds)
		}
	}
}

// allOtherwiseWell tells whether every server that can be reached has read all that it
// has of the queue.
func (f *findings) allOtherwiseWell() bool {
	return !slices.ContainsFunc(f.Servers, func(s probed) bool {
		return s.Unreachable != "" || s.StatsError != "" || s.GetError != "" || s.Stopped != "" || !s.Ready || s.LagBytes > 0
	})
}

// stateOf is the state of a server, beside others of which one has read the queue as far
// as furthest.
func (f *findings) stateOf(s *probed, furthest position) string {
	switch {
	case s.Draining:
		return "draining: it gives out no slots; boxcar undrain --servers " + s.Server + " has it serve again"
	case s.Unreachable != "":
		return "does not answer: " + s.Unreachable
	case s.StatsError != "":
		return s.StatsError
	case s.Stopped != "":
		return "its queue cannot be read on: " + s.Stopped
	case !s.Ready:
		return "it has not read its queue to the end yet, " + cli.FormatBytes(int64(s.LagBytes)) + " are left"
	case s.GetError != "":
		return "the canary cannot be fetched: " + s.GetError
	case !f.Wrote || f.AppendError != "" || s.FreshSeconds > 0:
		return wellState
	case s.LagBytes > 0:
		return "the canary is not served: the index is " + cli.FormatBytes(int64(s.LagBytes)) + " behind the queue here"
	case slices.Compare(s.Position[:], furthest[:]) < 0:
		return fmt.Sprintf("the canary is not here: this copy of the queue ends at %s, another server's at %s; look at docstore-sync here", s.Position, furthest)
	}
	return "the canary is not here, and there is nothing left to read"
}

func serversOf(n int) string { return cli.FormatCountOf(int64(n), "server", "servers") }
