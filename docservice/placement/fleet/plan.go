package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"docstore/docservice/placement"
)

// Plan is a plan and its effect.
type Plan struct {
	// ID identifies the wanted columns of the plan.
	ID string `json:"plan"`
	// Epoch is that of the map that the plan changes.
	Epoch uint64           `json:"epoch"`
	Moves []placement.Move `json:"moves"`
	Bytes int64            `json:"bytes"` // of the moves from one column to another
	// Before and After are the imbalance: the bytes of the fullest column in relation to
	// its share, 1 at best. 0 means that no column has a share.
	Before float64 `json:"imbalance_before"`
	After  float64 `json:"imbalance_after"`

	wanted []string
}

// Compare returns the plan for the live columns (placement.Propose) and its effect.
func Compare(m *placement.Map, states []placement.ServerState, sizes []int64, drained []string) (*Plan, error) {
	wanted, moves, err := placement.Propose(m, states, sizes, drained)
	if err != nil {
		return nil, err
	}
	p := &Plan{ID: idOf(wanted), Epoch: m.Epoch, Moves: moves, wanted: wanted}
	if p.Moves == nil {
		p.Moves = []placement.Move{}
	}
	before := make([]string, len(m.Shards))
	for i := range m.Shards {
		before[i] = m.Shards[i].Column
	}
	for _, move := range moves {
		if move.From != "" {
			p.Bytes += move.Bytes
		}
	}
	columns := placement.LiveColumns(states, drained)
	p.Before, p.After = imbalance(columns, before, sizes), imbalance(columns, wanted, sizes)
	return p, nil
}

// idOf returns a short name for the wanted columns of all shards.
func idOf(wanted []string) string {
	content, err := json.Marshal(wanted)
	if err != nil {
		panic(err) // strings
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:4])
}

// imbalance returns the bytes of the fullest column in relation to its share of the bytes
// that these columns hold.
func imbalance(columns []placement.Column, at []string, sizes []int64) float64 {
	load, weights, total := map[string]float64{}, 0, 0.0
	weight := map[string]int{}
	for _, c := range columns {
		weight[c.Name] = c.Weight
		weights += c.Weight
	}
	for i, name := range at {
		if weight[name] > 0 {
			load[name] += float64(max(sizes[i], 1))
			total += float64(max(sizes[i], 1))
		}
	}
	worst := 0.0
	for name, bytes := range load {
		worst = max(worst, bytes*float64(weights)/float64(weight[name])/total)
	}
	return worst
}
