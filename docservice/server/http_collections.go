package server

import (
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"net/http"

	"docstore/docservice/readiness"
)

// openAPI describes the HTTP interface. Package test/openapi validates responses against
// it.
//
//go:embed openapi.yaml
var openAPI []byte

func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPI) // the client may have disconnected
}

// collectionSummary is an element of /collections.
type collectionSummary struct {
	Name       string          `json:"name"`
	Ready      bool            `json:"ready"`
	State      readiness.State `json:"state"`
	Reason     string          `json:"reason,omitempty"` // why it is not ready
	Queue      string          `json:"queue,omitempty"`  // the queue's id
	Position   string          `json:"position"`
	LagBytes   int64           `json:"lag_bytes"`
	LagSeconds float64         `json:"lag_seconds"`
	Faults     int             `json:"faults"`
}

// serveCollections lists the collections that the caller may use:
// {"collections":[{"name":"jobs","ready":true,...}]}.
func (s *Server) serveCollections(w http.ResponseWriter, r *http.Request) {
	list := []collectionSummary{}
	for _, h := range s.Held() {
		if s.Authorize(r.Context(), h.Name()) != nil {
			continue
		}
		r := s.readiness(h)
		one := collectionSummary{
			Name: h.Name(), Ready: r.Ready, State: r.State, Reason: r.Reason, Position: r.Position,
			LagBytes: r.LagBytes, LagSeconds: r.LagSeconds, Faults: len(r.Faults) + r.MoreFaults,
		}
		if r.QueueID != [16]byte{} {
			one.Queue = hex.EncodeToString(r.QueueID[:])
		}
		list = append(list, one)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"collections": list}) // the client may have disconnected
}
