package server

import (
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"docstore/docservice/collection"
	"docstore/docservice/readiness"
	"docstore/docservice/server/internal/httpapi"
	"docstore/docservice/server/livepage"
)

// Readiness is the body of /readyz.
type Readiness struct {
	Ready       bool                           `json:"ready"`
	Ending      bool                           `json:"ending,omitempty"`
	Draining    bool                           `json:"draining,omitempty"`
	Collections map[string]CollectionReadiness `json:"collections"`
}

// CollectionReadiness is the readiness of a collection.
type CollectionReadiness struct {
	livepage.Readiness
	Position   string           `json:"position"`
	LagBytes   int64            `json:"lag_bytes"`
	LagSeconds float64          `json:"lag_seconds"`
	Faults     []livepage.Fault `json:"faults"`
	MoreFaults int              `json:"more_faults,omitempty"`
	// QueueID is the id of the queue; zero: none, or that of shards.
	QueueID [16]byte `json:"-"`
	// Replacement is a queue that is being indexed to replace this one.
	Replacement *ReplacementReadiness `json:"replacement,omitempty"`
}

// ReplacementReadiness describes the queue that replaces another.
type ReplacementReadiness struct {
	Queue    string   `json:"queue"`
	LagBytes int64    `json:"lag_bytes"`
	Faults   []string `json:"faults"` // the faults that stop it
}

// serveReady answers 200 if every collection includes all entries of its queue. Damaged
// documents are reported but do not make the server unready: clients read them from other
// servers.
//
// A draining server is ready, because it still answers, except for a probe with
// ?draining=503, for balancers that shall stop sending requests.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	drainingIsUnready := false
	switch when := r.URL.Query().Get("draining"); when {
	case "", "200":
	case "503":
		drainingIsUnready = true
	default:
		httpapi.Errorf(httpapi.CodeInvalidArgument, "draining=%s: want 503, or 200 for the default", when).Write(w)
		return
	}
	body := s.Readiness()
	body.Draining = s.boxcar.Stats().Draining
	body.Ready = body.Ready && (!body.Draining || !drainingIsUnready)
	w.Header().Set("Content-Type", "application/json")
	if !body.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(body) // the client may have disconnected
}

// Readiness returns the body of /readyz.
func (s *Server) Readiness() Readiness {
	body := Readiness{Ready: true, Collections: make(map[string]CollectionReadiness)}
	if s.ending.Load() {
		body.Ready, body.Ending = false, true
	}
	for _, h := range s.Held() {
		one := s.readiness(h)
		body.Collections[h.Name()] = one
		body.Ready = body.Ready && one.Ready
	}
	return body
}

// Ready is Readiness().Ready, without its cost.
func (s *Server) Ready() bool {
	return !s.ending.Load() && !slices.ContainsFunc(s.Held(), func(h Held) bool { return !isReady(h) })
}

// readiness describes the readiness of a collection.
func (s *Server) readiness(h Held) CollectionReadiness {
	if column := h.Column(); column != nil {
		return CollectionReadiness{Readiness: s.states.describe(h.Name(), column.Report), Faults: []livepage.Fault{}}
	}
	return s.shardReadiness(h.Shards()[0]) // a server without a replica set holds collections of one shard
}

// shardReadiness describes the readiness of a shard: its files and its index.
func (s *Server) shardReadiness(one Shard) CollectionReadiness {
	status := one.Status()
	return describeReadiness(status, s.states.describe(one.Name(), one.report(status)))
}

// describeReadiness describes the readiness of a shard whose collection has a status.
func describeReadiness(status collection.Status, ready livepage.Readiness) CollectionReadiness {
	r := CollectionReadiness{
		Readiness:  ready,
		Position:   status.Position.Next.String(),
		LagBytes:   status.LagBytes(),
		LagSeconds: status.Lag.Seconds(),
		Faults:     []livepage.Fault{},
		MoreFaults: status.MoreFaults,
		QueueID:    status.Position.Queue,
	}
	if next := status.Replacement; next != nil {
		r.Replacement = &ReplacementReadiness{
			Queue: hex.EncodeToString(next.Queue[:]), LagBytes: next.PresentBytes - next.TailedBytes, Faults: []string{},
		}
		for _, f := range next.Faults {
			r.Replacement.Faults = append(r.Replacement.Faults, f.String())
		}
	}
	for _, f := range status.Faults {
		r.Faults = append(r.Faults, livepage.Fault{
			Segment: uint32(f.Segment), Offset: f.Offset, Path: f.Path, Reason: f.Reason, StopsTail: f.StopsTail, Since: f.Since,
		})
	}
	return r
}

// report returns the state of a shard whose collection has a status.
func (s Shard) report(status collection.Status) readiness.Report {
	return readiness.Copy(s.Files, status.Index.Report())
}

// states has the last states of the collections and shards by name, for the log and for estimates.
type states struct {
	logger *slog.Logger
	mu     sync.Mutex
	of     map[string]*lastState
}

type lastState struct {
	state readiness.State
	since time.Time
	meter readiness.Meter
	seen  bool // since the last call of forgetOthers
}

// observe records a report at a time, and logs another state than before.
func (s *states) observe(name string, r readiness.Report, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.of[name]
	if last == nil {
		last = &lastState{}
		s.of[name] = last
	}
	last.seen = true
	last.meter.Observe(r, at)
	if last.state == r.State {
		return
	}
	log := s.logger.With("collection", name, "state", r.State)
	if last.state != "" {
		log = log.With("before", last.state, "after", at.Sub(last.since).Round(time.Millisecond).String())
	}
	last.state, last.since = r.State, at
	switch {
	case r.IsReady():
		log.Info("ready")
	case r.State == readiness.Faulted:
		log.Warn("not ready", "reason", r.Reason())
	default:
		log.Info("not ready", "reason", r.Reason())
	}
}

// describe describes a report, with the time left if it is known.
func (s *states) describe(name string, r readiness.Report) livepage.Readiness {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.of[name]; last != nil {
		r = last.meter.Estimate(r)
	}
	return livepage.ReadinessOf(r)
}

// all returns the last states by name.
func (s *states) all() map[string]readiness.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]readiness.State, len(s.of))
	for name, last := range s.of {
		all[name] = last.state
	}
	return all
}

// forgetOthers forgets those that were not observed since the last call: shards move away.
func (s *states) forgetOthers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.of, func(_ string, last *lastState) bool { return !last.seen })
	for _, last := range s.of {
		last.seen = false
	}
}
